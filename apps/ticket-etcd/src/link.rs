//! One look at etcd, and what follows from it.
//!
//! One endpoint is asked at a time. If it does not answer in time, or has no leader, the next one is. All
//! that is read comes from one linearizable transaction, which a member without a majority cannot answer. All
//! that is written is a transaction, which fails if the lease is lost or another instance has written.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::gateway::{Entry, Gateway, PATIENCE, base64};
use crate::options::{Options, Secrets};
use crate::rules::{Act, Holder, View, Write};
use crate::sealed;

/// The connection to one endpoint at a time.
pub(crate) struct Link {
    options: Options,
    secrets: Secrets,
    /// The one that has answered last, or is tried next.
    endpoint: usize,
    open: Option<Gateway>,
    /// The lease under which this instance may write, if it has one.
    lease: Option<i64>,
    /// Time at which the lease was kept alive last.
    kept: Instant,
}

/// Failure at one endpoint.
enum Failure {
    /// No connection, no answer, no leader: another endpoint may do better.
    Here(String),
    /// All of etcd would say the same.
    Everywhere(String),
}

/// Function that takes a look, and says what to do. Without one: time passes, and keys may have to be renewed.
pub(crate) type Observe<'a> = dyn FnMut(Option<(View, Instant)>) -> Result<Act, String> + 'a;

impl Link {
    pub(crate) fn new(options: Options, secrets: Secrets) -> Self {
        Self {
            options,
            secrets,
            endpoint: 0,
            open: None,
            lease: None,
            kept: Instant::now(),
        }
    }

    /// Asks with these from now on.
    pub(crate) fn renew(&mut self, secrets: Secrets) {
        self.secrets = secrets;
        self.open = None;
    }

    /// Reads what etcd has, and does what is to be done, unless `is_to_end` says that there is no time.
    pub(crate) fn turn(&mut self, observe: &mut Observe<'_>, is_to_end: &dyn Fn() -> bool) -> Result<(), String> {
        let mut problems: Vec<String> = Vec::new();
        for _ in 0..self.options.endpoints.len() {
            match self.turn_here(observe) {
                Ok(()) => return Ok(()),
                Err(Failure::Everywhere(problem)) => {
                    self.open = None;
                    return Err(problem);
                }
                Err(Failure::Here(problem)) => {
                    self.open = None;
                    self.endpoint = (self.endpoint + 1) % self.options.endpoints.len();
                    problems.push(problem);
                }
            }
            if is_to_end() {
                break;
            }
            // With several endpoints, that takes longer than keys may wait to be renewed.
            observe(None)?;
        }
        problems.sort();
        Err(problems.join("; "))
    }

    fn turn_here(&mut self, observe: &mut Observe<'_>) -> Result<(), Failure> {
        for _ in 0..MOST_ACTS {
            self.keep_alive()?;
            let asked = Instant::now();
            let view = self.read()?;
            match observe(Some((view, asked))).map_err(Failure::Everywhere)? {
                Act::Nothing => return Ok(()),
                Act::Claim => self.claim()?,
                Act::Resign => self.resign(),
                Act::Write(write) => self.write(&write)?,
            }
        }
        Ok(())
    }

    fn read(&mut self) -> Result<View, Failure> {
        let names = [KEYS, HOLDER, FRESH].map(|name| self.at(name));
        // Only these: others may have any number of names below the prefix.
        let [keys, holder, fresh] = self.call(|gateway| gateway.read(names.each_ref().map(String::as_str)))?;
        let holder = holder.map(|entry: Entry| entry.lease);
        if holder.is_some() && holder != self.lease {
            // What is left of it expires.
            self.lease = None;
        }
        Ok(View {
            keys: keys.map(|entry| {
                let name = names[0].as_bytes();
                let set = sealed::open(&self.secrets.secret, name, &entry.value);
                (entry.revision, set)
            }),
            fresh: fresh.is_some(),
            holder: match (holder, self.lease) {
                (None, _) => Holder::None,
                (Some(of), Some(own)) if of == own => Holder::This(own),
                (Some(0), _) => Holder::WithoutLease,
                (Some(_), _) => Holder::Another,
            },
        })
    }

    fn keep_alive(&mut self) -> Result<(), Failure> {
        let Some(lease) = self.lease else {
            return Ok(());
        };
        if self.kept.elapsed() < LEASE / 4 {
            return Ok(());
        }
        let asked = Instant::now();
        match self.call(|gateway| gateway.keep_alive(lease))? {
            true => self.kept = asked,
            // It has ended: another instance may have one now.
            false => self.lease = None,
        }
        Ok(())
    }

    fn claim(&mut self) -> Result<(), Failure> {
        // That of a claim without an answer holds nothing, as the read has shown.
        self.resign();
        let asked = Instant::now();
        let lease = self.call(|gateway| gateway.grant(LEASE))?;
        let holder = base64(self.at(HOLDER));
        let free = equal(&holder, "CREATE", "create_revision", 0);
        let take = json!({"key": holder, "value": base64(host()), "lease": lease.to_string()});
        // Without an answer, it may have been taken: the next read tells.
        (self.lease, self.kept) = (Some(lease), asked);
        let taken = self.call(|gateway| gateway.change(&[free], &[take]));
        match &taken {
            Ok(true) | Err(Failure::Here(_)) => {}
            Ok(false) | Err(Failure::Everywhere(_)) => self.resign(),
        }
        taken.map(|_| ())
    }

    /// Gives the lease back, so that another instance writes at once. Without an answer, etcd lets it expire.
    pub(crate) fn resign(&mut self) {
        if let Some(lease) = self.lease.take() {
            let _ = self.call(|gateway| gateway.revoke(lease));
        }
    }

    fn write(&mut self, write: &Write) -> Result<(), Failure> {
        let Some(lease) = self.lease else {
            return Ok(());
        };
        let name = self.at(KEYS);
        let value = sealed::seal(&self.secrets.secret, name.as_bytes(), &write.set)
            .map_err(|error| Failure::Everywhere(error.to_string()))?;
        let [keys, holder, fresh] = [KEYS, HOLDER, FRESH].map(|name| base64(self.at(name)));
        let lasts = Duration::from_secs(write.fresh.into());
        let timer = self.call(|gateway| gateway.grant(lasts))?;
        let mut when = vec![
            equal(&holder, "LEASE", "lease", lease),
            equal(&keys, "MOD", "mod_revision", write.revision),
        ];
        if write.turn {
            when.push(equal(&fresh, "CREATE", "create_revision", 0));
        }
        let then = [
            json!({"key": keys, "value": base64(value)}),
            json!({"key": fresh, "lease": timer.to_string()}),
        ];
        let written = self.call(|gateway| gateway.change(&when, &then));
        match &written {
            Ok(true) => {
                let (prefix, generation) = (&self.options.prefix, write.set.generation);
                tracing::info!(prefix, generation, "ticket keys written into etcd");
            }
            // Without an answer, it may have been written, with this lease.
            Err(Failure::Here(_)) => {}
            Ok(false) | Err(Failure::Everywhere(_)) => {
                let _ = self.call(|gateway| gateway.revoke(timer));
            }
        }
        written.map(|_| ())
    }

    fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.options.prefix)
    }

    /// Asks the endpoint of the moment.
    fn call<T>(&mut self, ask: impl FnOnce(&mut Gateway) -> Result<T, String>) -> Result<T, Failure> {
        let endpoint = &self.options.endpoints[self.endpoint];
        let user = self.options.user.as_deref();
        let gateway = self
            .open
            .get_or_insert_with(|| Gateway::new(endpoint, user, &self.secrets));
        ask(gateway).map_err(|text| explain(endpoint, user, &self.options.prefix, &text))
    }
}

/// Condition of a transaction: a number of an entry has a value.
fn equal(name: &str, target: &str, field: &str, value: i64) -> serde_json::Value {
    json!({"key": name, "target": target, "result": "EQUAL", field: value.to_string()})
}

fn late(endpoint: &str) -> Failure {
    Failure::Here(format!(
        "etcd at {endpoint} does not answer within {} seconds; see whether it runs and a majority of \
         its members reach each other (`etcdctl endpoint health --cluster`), and whether a firewall is \
         between",
        PATIENCE.as_secs()
    ))
}

/// Names the most likely mistake behind an error, and what to do.
fn explain(endpoint: &str, user: Option<&str>, prefix: &str, text: &str) -> Failure {
    let has = |part: &str| text.contains(part);
    let everywhere = |problem: String| Failure::Everywhere(format!("etcd at {endpoint} {problem}"));
    let here = |problem: String| Failure::Here(format!("etcd at {endpoint} {problem}"));
    let who = user.unwrap_or("without a name");
    if has("invalid user ID or password") {
        return everywhere(format!(
            "refuses the password of user `{who}`; correct --user and --password-file (etcdctl --user \
             {who} get {prefix}/ tries them)"
        ));
    }
    if has("user name is empty") || has("user name not found") {
        return everywhere(
            "wants a user; give --user and --password-file (its JSON gateway takes no user from a client \
             certificate)"
                .into(),
        );
    }
    if has("authentication is not enabled") {
        return everywhere("has no users; leave out --user and --password-file, or call: etcdctl auth enable".into());
    }
    if has("permission denied") {
        return everywhere(format!(
            "gives user `{who}` too few rights; grant them: etcdctl role grant-permission ROLE readwrite \
             --prefix=true {prefix}/"
        ));
    }
    if has("UnknownIssuer") {
        return here(
            "has a certificate of an authority that is not in the file of --ca; put the authority that has \
             signed etcd's certificate there"
                .into(),
        );
    }
    if has("NotValidForName") || has("not valid for name") {
        return here("has a certificate for other names; write the endpoint as its certificate names it".into());
    }
    if text.starts_with("timeout") {
        return late(endpoint);
    }
    if ["Expired", "expired", "NotValidYet", "not valid"].into_iter().any(has) {
        return here(format!(
            "has a certificate that is not valid at this time: {text}; renew it, or correct the clock of \
             this machine"
        ));
    }
    if has("CertificateRequired") || has("BadCertificate") || has("received fatal alert") {
        return here(format!(
            "refuses this client's certificate: {text}; give --cert and --key of a certificate of the \
             authority that etcd trusts (its --trusted-ca-file)"
        ));
    }
    // A server without TLS answers in plain, or closes as etcd does.
    if has("InvalidContentType") || has("InvalidMessage") {
        return here("does not speak TLS; write http:// in --endpoint".into());
    }
    // It closes without a word, and the moment decides which error that is.
    let is_closed = ["BrokenPipe", "ConnectionReset", "UnexpectedEof"].into_iter().any(has);
    if is_closed {
        let remedy = match endpoint.starts_with("http://") {
            true => "if it speaks TLS, write https:// in --endpoint, and give the authority of its certificate as --ca",
            false => "if it goes on and it does not speak TLS, write http:// in --endpoint",
        };
        return here(format!("closes the connection; {remedy}"));
    }
    if has("refused") {
        return here("refuses the connection; start etcd, or correct --endpoint (its --listen-client-urls)".into());
    }
    here(format!(
        "fails: {text}; see whether it runs and has a leader: etcdctl endpoint status --cluster"
    ))
}

/// The name of this machine, for people who look into etcd.
fn host() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.nodename().to_string_lossy(), std::process::id())
}

/// The names below the prefix.
pub(crate) const KEYS: &str = "keys";
pub(crate) const HOLDER: &str = "holder";
const FRESH: &str = "fresh";
/// Time after its last sign of life from which another instance may write.
const LEASE: Duration = Duration::from_secs(10);
/// Most acts that follow from one look: become the holder, write the first set, see it.
const MOST_ACTS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of etcd 3.4, ureq and rustls. `tests/etcd.rs` of the terminator has a real etcd say the likeliest.
    #[test]
    fn each_likely_mistake_has_a_sentence_with_its_remedy() {
        for (text, problem, remedy) in [
            (
                "etcdserver: authentication failed, invalid user ID or password",
                "refuses the password of user `app`",
                "correct --user and --password-file",
            ),
            ("etcdserver: user name is empty", "wants a user", "give --user"),
            (
                "etcdserver: authentication is not enabled",
                "has no users",
                "leave out --user",
            ),
            (
                "etcdserver: permission denied",
                "too few rights",
                "etcdctl role grant-permission ROLE readwrite --prefix=true /p/",
            ),
            (
                "transport error: invalid peer certificate: UnknownIssuer",
                "not in the file of --ca",
                "put the authority",
            ),
            (
                "invalid peer certificate: certificate not valid for name: NotValidForName",
                "for other names",
                "write the endpoint",
            ),
            ("timeout: global", "does not answer within", "see whether it runs"),
            (
                "invalid peer certificate: certificate Expired",
                "not valid at this time",
                "correct the clock",
            ),
            (
                "received fatal alert: CertificateRequired",
                "refuses this client's certificate",
                "give --cert and --key",
            ),
            (
                "received corrupt message of type InvalidContentType",
                "does not speak TLS",
                "http://",
            ),
            ("io: broken pipe (BrokenPipe)", "if it speaks TLS", "write https://"),
            (
                "Connection refused (os error 111)",
                "refuses the connection",
                "start etcd",
            ),
            ("something else", "fails: something else", "etcdctl endpoint status"),
        ] {
            let (Failure::Here(said) | Failure::Everywhere(said)) = explain("http://e:2379", Some("app"), "/p", text);
            assert!(said.contains(problem) && said.contains(remedy), "{said}");
        }
        let (Failure::Here(said) | Failure::Everywhere(said)) =
            explain("https://e:2379", None, "/p", "io: end (UnexpectedEof)");
        assert!(said.contains("write http://"), "{said}");
    }
}
