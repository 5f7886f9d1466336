//! etcd's JSON gateway: gRPC calls as HTTP requests, with names and values in base64.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64ct::{Base64, Encoding};
use serde_json::{Value, json};
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};
use zeroize::Zeroizing;

use crate::options::Secrets;

/// One endpoint, with a connection that is kept.
pub(crate) struct Gateway {
    agent: Agent,
    endpoint: String,
    user: Option<(String, Zeroizing<String>)>,
    /// The token of the user, once the password was taken.
    token: Option<Zeroizing<String>>,
}

/// Value at a name.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) value: Vec<u8>,
    /// Revision of the last change.
    pub(crate) revision: i64,
    /// 0: there is none.
    pub(crate) lease: i64,
}

impl Gateway {
    pub(crate) fn new(endpoint: &str, user: Option<&str>, secrets: &Secrets) -> Self {
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .root_certs(RootCerts::new_with_certs(&secrets.authorities))
            .client_cert(secrets.identity.clone())
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .timeout_global(Some(PATIENCE))
            // A redirection could take the password elsewhere.
            .max_redirects(0)
            .http_status_as_error(false)
            .user_agent(concat!("widelane/", env!("CARGO_PKG_VERSION")))
            // Where etcd is is in the options, not in the environment.
            .proxy(None);
        let user = user.zip(secrets.password.as_ref());
        Self {
            agent: config.build().new_agent(),
            endpoint: endpoint.to_owned(),
            user: user.map(|(user, password)| (user.to_owned(), password.clone())),
            token: None,
        }
    }

    /// Reads the values at these names at one moment. A member without a majority cannot answer that.
    pub(crate) fn read(&mut self, names: [&str; 3]) -> Result<[Option<Entry>; 3], String> {
        let ranges = names.map(|name| json!({"request_range": {"key": base64(name)}}));
        entries(&self.call("kv/txn", &json!({"success": ranges}))?)
    }

    /// A change, which happens if all of `compare` is true. Returns whether it has happened.
    pub(crate) fn change(&mut self, compare: &[Value], puts: &[Value]) -> Result<bool, String> {
        let puts: Vec<_> = puts.iter().map(|put| json!({"request_put": put})).collect();
        let answer = self.call("kv/txn", &json!({"compare": compare, "success": puts}))?;
        Ok(answer["succeeded"].as_bool().unwrap_or(false))
    }

    /// A new lease.
    pub(crate) fn grant(&mut self, time: Duration) -> Result<i64, String> {
        let seconds = time.as_secs().to_string();
        lease(&self.call("lease/grant", &json!({"TTL": seconds}))?).map(|(id, _)| id)
    }

    /// Keeps a lease alive for its whole time again. Returns whether it was.
    pub(crate) fn keep_alive(&mut self, id: i64) -> Result<bool, String> {
        match self.call("lease/keepalive", &json!({"ID": id.to_string()})) {
            Err(error) if error.contains("lease not found") => Ok(false),
            answer => lease(&answer?).map(|(_, seconds)| seconds > 0),
        }
    }

    pub(crate) fn revoke(&mut self, id: i64) -> Result<(), String> {
        self.call("lease/revoke", &json!({"ID": id.to_string()})).map(drop)
    }

    /// Asks as the user, if there is one. A token ends after a while, and with a restart of etcd.
    fn call(&mut self, what: &str, question: &Value) -> Result<Value, String> {
        let is_known = self.token.is_some();
        self.authenticate()?;
        match self.ask(what, question) {
            Err(error) if is_known && OLD_TOKEN.iter().any(|text| error.contains(text)) => {
                self.token = None;
                self.authenticate()?;
                self.ask(what, question)
            }
            answer => answer,
        }
    }

    fn authenticate(&mut self) -> Result<(), String> {
        if let (None, Some((user, password))) = (&self.token, &self.user) {
            let question = json!({"name": user, "password": password.as_str()});
            let answer = self.ask("auth/authenticate", &question)?;
            let token = answer["token"].as_str().ok_or(STRANGE)?;
            self.token = Some(Zeroizing::new(token.to_owned()));
        }
        Ok(())
    }

    fn ask(&self, what: &str, question: &Value) -> Result<Value, String> {
        let request = self.agent.post(format!("{}/v3/{what}", self.endpoint));
        let request = request.header("content-type", "application/json");
        let request = match &self.token {
            Some(token) => request.header("authorization", token.as_str()),
            None => request,
        };
        let question = Zeroizing::new(question.to_string());
        let sent = request.send(question.as_bytes());
        let mut response = sent.map_err(|error| chain(&error))?;
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(LONGEST);
        let body = body.read_to_vec().map_err(|error| chain(&error))?;
        answer(status, &body)
    }
}

/// Reads an answer, or the error in it. Behind the first value of a stream there may be more.
pub(crate) fn answer(status: u16, body: &[u8]) -> Result<Value, String> {
    let is_good = (200..300).contains(&status);
    let mut values = serde_json::Deserializer::from_slice(body).into_iter::<Value>();
    let Some(Ok(Value::Object(mut answer))) = values.next() else {
        return Err(match is_good {
            true => STRANGE.into(),
            false => plain(&format!(
                "HTTP status {status}: {}",
                String::from_utf8_lossy(body).trim()
            )),
        });
    };
    // The text alone, or an object with it in a stream; later releases have no `error`.
    let error = answer.get("error").map(|error| error.get("message").unwrap_or(error));
    let error = error.or(answer.get("message").filter(|_| !is_good));
    match (error, is_good) {
        (Some(error), _) => {
            let text = error.as_str().filter(|text| !text.is_empty());
            Err(plain(text.unwrap_or("an error without a text")))
        }
        (None, false) => Err(format!("HTTP status {status}")),
        (None, true) => Ok(answer.remove("result").unwrap_or(Value::Object(answer))),
    }
}

/// The entries in an answer to [`Gateway::read`]. An answer that is not whole does not mean that entries are gone.
pub(crate) fn entries(answer: &Value) -> Result<[Option<Entry>; 3], String> {
    let all = answer["responses"].as_array();
    let all = all.filter(|all| all.len() == 3 && answer["succeeded"] == true);
    let all = all.ok_or(STRANGE)?;
    let [first, second, third] = [0, 1, 2].map(|place| {
        let range = all[place]["response_range"].as_object().ok_or(STRANGE)?;
        match range.get("kvs").map(|all| &all[0]) {
            None => Ok(None),
            Some(entry) => self::entry(entry).map(Some).ok_or(STRANGE),
        }
    });
    Ok([first?, second?, third?])
}

fn entry(entry: &Value) -> Option<Entry> {
    let text = |name: &str| entry.get(name).map_or(Some(""), Value::as_str);
    Some(Entry {
        value: Base64::decode_vec(text("value")?).ok()?,
        revision: number(entry, "mod_revision").filter(|revision| *revision > 0)?,
        lease: number(entry, "lease")?,
    })
}

/// A lease and the seconds that it has left: 0 if it has ended.
pub(crate) fn lease(answer: &Value) -> Result<(i64, i64), String> {
    let id = number(answer, "ID").filter(|id| *id > 0);
    Ok(id.zip(number(answer, "TTL")).ok_or(STRANGE)?)
}

/// A number, which the gateway writes as a text, and leaves out if it is 0.
fn number(answer: &Value, name: &str) -> Option<i64> {
    match answer.get(name) {
        None => Some(0),
        Some(Value::String(text)) => text.parse().ok(),
        Some(number) => number.as_i64(),
    }
}

pub(crate) fn base64(bytes: impl AsRef<[u8]>) -> String {
    Base64::encode_string(bytes.as_ref())
}

/// An error with all that caused it.
fn chain(error: &ureq::Error) -> String {
    let mut text = error.to_string();
    if let ureq::Error::Io(error) = error {
        text = format!("{text} ({:?})", error.kind());
        // rustls' error is inside.
        let mut cause: Option<&(dyn Error + 'static)> = io::Error::get_ref(error).map(|inner| inner as _);
        while let Some(one) = cause {
            text = format!("{text}: {one}");
            cause = one.source();
        }
    }
    plain(&text)
}

/// Shortens a text of etcd, which is not trusted.
fn plain(text: &str) -> String {
    let plain = |one: char| if one.is_control() { ' ' } else { one };
    text.chars().map(plain).take(LONGEST_TEXT).collect()
}

/// Time limit of each request.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
const OLD_TOKEN: [&str; 2] = ["invalid auth token", "revision of auth store is old"];
const STRANGE: &str = "it gives no answer of etcd's JSON gateway";
/// Many times three entries.
const LONGEST: u64 = 256 * 1024;
const LONGEST_TEXT: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of etcd 3.4.
    #[test]
    fn answers_of_etcd_are_read() {
        let read = |body: &str| answer(200, body.as_bytes()).and_then(|answer| entries(&answer));
        let [keys, holder, fresh] = read(
            r#"{"header":{"revision":"9"},"succeeded":true,"responses":[
            {"response_range":{"header":{"revision":"9"},"kvs":[{"key":"L3A=","create_revision":"2",
            "mod_revision":"7","version":"1","value":"YQ=="}],"count":"1"}},
            {"response_range":{"kvs":[{"key":"L3A=","mod_revision":"8","lease":"4581746468218522887"}]}},
            {"response_range":{"header":{"revision":"9"}}}]}"#,
        )
        .unwrap();
        let keys = keys.unwrap();
        assert_eq!((&keys.value[..], keys.revision, keys.lease), (&b"a"[..], 7, 0));
        assert_eq!(holder.unwrap().lease, 4_581_746_468_218_522_887);
        assert!(fresh.is_none());
        let lived = r#"{"result":{"header":{},"ID":"123","TTL":"10"}}
        {"error":{"message":"later"}}"#;
        let lived = answer(200, lived.as_bytes()).unwrap();
        assert_eq!(lease(&lived), Ok((123, 10)));
        let ended = answer(200, br#"{"result":{"ID":"123"}}"#).unwrap();
        assert_eq!(lease(&ended), Ok((123, 0)));
    }

    /// An answer that is not whole must not pass for an etcd without entries.
    #[test]
    fn an_answer_that_is_not_whole_is_an_error() {
        let empty = r#"{"response_range":{}}"#;
        let whole = |all: &str| format!(r#"{{"succeeded":true,"responses":[{all}]}}"#);
        let good = whole(&[empty; 3].join(","));
        let read = |body: &str| answer(200, body.as_bytes()).and_then(|answer| entries(&answer));
        assert!(read(&good).unwrap().iter().all(Option::is_none));
        let strange = [
            String::new(),
            "{}".into(),
            "[]".into(),
            "<html>".into(),
            good.replace("true", "false"),
            whole(&[empty; 2].join(",")),
            whole(&[r#"{"response_put":{}}"#; 3].join(",")),
            good.replacen("{}", r#"{"kvs":[]}"#, 1),
            good.replacen("{}", r#"{"kvs":[{"mod_revision":"x"}]}"#, 1),
            good.replacen("{}", r#"{"kvs":[{"mod_revision":"1","value":"?"}]}"#, 1),
        ];
        for body in strange {
            assert_eq!(read(&body).unwrap_err(), STRANGE, "{body}");
        }
    }

    #[test]
    fn errors_are_read_in_each_of_their_forms() {
        for (status, body, said) in [
            (400, r#"{"error":"a","message":"a","code":3}Grpc-Trailer-"#, "a"),
            (403, r#"{"code":7,"message":"b","details":[]}"#, "b"),
            (200, r#"{"error":{"grpc_code":5,"http_code":404,"message":"c"}}"#, "c"),
            (500, r#"{"error":7}"#, "an error without a text"),
            (200, r#"{"error":""}"#, "an error without a text"),
            (500, "{}", "HTTP status 500"),
            (404, "404 page\nnot found\n", "HTTP status 404: 404 page not found"),
        ] {
            assert_eq!(answer(status, body.as_bytes()).unwrap_err(), said);
        }
    }
}
