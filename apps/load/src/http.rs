//! A minimal HTTP/1.1 client: finds out when the one answer is complete, and its status.

use crate::error::Fault;

/// One answer, read in pieces.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    head: Vec<u8>,
    /// Bytes of interim answers, which are as many as the server likes.
    interim: usize,
    body: Option<Body>,
}

#[derive(Debug)]
struct Body {
    status: u16,
    /// Value of Content-Length; `None`: until the connection closes (we ask for that).
    length: Option<u64>,
    received: u64,
}

/// The bytes of a request for `path`.
pub(crate) fn request(path: &str, host: &str) -> Vec<u8> {
    // An IPv6 address in a Host header is in brackets (RFC 9110, 7.2).
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: widelane-load\r\nAccept: */*\r\n\
         Connection: close\r\n\r\n"
    )
    .into_bytes()
}

impl Answer {
    /// Reads more bytes. True once the answer is complete.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<bool, Fault> {
        if let Some(body) = &mut self.body {
            body.received += bytes.len() as u64;
            return body.complete();
        }
        self.head.extend_from_slice(bytes);
        loop {
            let Some(end) = self.head.windows(4).position(|four| four == b"\r\n\r\n") else {
                return if self.head.len() > MAX_HEAD {
                    Err(Fault::HttpMalformed)
                } else {
                    Ok(false)
                };
            };
            let mut body = Body::parse(&self.head[..end])?;
            if body.is_interim() {
                // The answer comes behind it (RFC 9110, section 15.2).
                self.interim += end;
                if self.interim > MAX_HEAD {
                    return Err(Fault::HttpMalformed);
                }
                self.head.drain(..end + 4);
                continue;
            }
            body.received = (self.head.len() - end - 4) as u64;
            self.head = Vec::new();
            return self.body.insert(body).complete();
        }
    }

    /// Checks the answer when the connection has ended.
    pub(crate) fn end(&self) -> Result<(), Fault> {
        match &self.body {
            Some(body) if body.length.is_none() => body.check_status(),
            Some(body) if body.complete()? => Ok(()),
            _ => Err(Fault::Truncated),
        }
    }
}

impl Body {
    fn parse(head: &[u8]) -> Result<Self, Fault> {
        // Values may be in any encoding (RFC 9110, section 5.5).
        let head = String::from_utf8_lossy(head);
        let mut lines = head.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.strip_prefix("HTTP/1."))
            .and_then(|line| line.split(' ').nth(1))
            .and_then(|status| status.parse().ok())
            .filter(|status| (100..1000).contains(status))
            .ok_or(Fault::HttpMalformed)?;
        let mut length = None;
        for line in lines {
            let (name, value) = line.split_once(':').ok_or(Fault::HttpMalformed)?;
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.trim().parse().map_err(|_| Fault::HttpMalformed)?);
            }
        }
        // These have no body, even if a header gives a length (RFC 9112, 6.3).
        if status == 204 || status == 304 {
            length = Some(0);
        }
        Ok(Self {
            status,
            length,
            received: 0,
        })
    }

    /// Returns whether the answer is an interim one. 101 is final: nothing that this client asked for.
    fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }

    fn complete(&self) -> Result<bool, Fault> {
        if self.length.is_none_or(|length| self.received < length) {
            return Ok(false);
        }
        self.check_status().map(|()| true)
    }

    fn check_status(&self) -> Result<(), Fault> {
        if (200..400).contains(&self.status) {
            Ok(())
        } else {
            Err(Fault::Http(self.status))
        }
    }
}

const MAX_HEAD: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `text` in pieces of every size; the kind of failure, or whether it completed.
    fn outcome(text: &str) -> Result<bool, String> {
        let outcomes: Vec<_> = (1..=text.len())
            .map(|size| {
                let mut answer = Answer::default();
                for piece in text.as_bytes().chunks(size) {
                    if answer.feed(piece).map_err(|fault| fault.to_string())? {
                        return Ok(true);
                    }
                }
                answer.end().map(|()| false).map_err(|fault| fault.to_string())
            })
            .collect();
        assert!(
            outcomes.windows(2).all(|two| two[0] == two[1]),
            "{text:?}: {outcomes:?}"
        );
        outcomes[0].clone()
    }

    #[test]
    fn answers_end_by_length_or_by_close() {
        assert_eq!(outcome("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"), Ok(true));
        assert_eq!(
            outcome("HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n"),
            Ok(true)
        );
        assert_eq!(outcome("HTTP/1.0 200 OK\r\n\r\nhello"), Ok(false));
        let cut = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi";
        assert_eq!(outcome(cut), Err(Fault::Truncated.to_string()));
        assert_eq!(outcome("HTTP/1.1 200"), Err(Fault::Truncated.to_string()));
    }

    #[test]
    fn statuses_and_nonsense_are_different_faults() {
        let missing = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(outcome(missing), Err("http 404".into()));
        assert_eq!(outcome("HTTP/1.1 502 Bad\r\n\r\n"), Err("http 502".into()));
        assert_eq!(outcome("SSH-2.0-x\r\n\r\n"), Err(Fault::HttpMalformed.to_string()));
        let length = "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n";
        assert_eq!(outcome(length), Err(Fault::HttpMalformed.to_string()));
    }

    #[test]
    fn interim_answers_are_passed_over() {
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        for interim in [
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n",
        ] {
            assert_eq!(outcome(&format!("{interim}{answer}")), Ok(true));
            assert_eq!(outcome(interim), Err(Fault::Truncated.to_string()));
        }
        let switched = format!("HTTP/1.1 101 Switching Protocols\r\n\r\n{answer}");
        assert_eq!(outcome(&switched), Err("http 101".into()));
        let mut endless = Answer::default();
        let hints = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(MAX_HEAD / 20);
        assert_eq!(
            endless.feed(hints.as_bytes()).map_err(|fault| fault.to_string()),
            Err(Fault::HttpMalformed.to_string())
        );
    }

    #[test]
    fn values_of_headers_may_be_in_any_encoding() {
        let mut answer = Answer::default();
        assert!(
            answer
                .feed(b"HTTP/1.1 200 OK\r\nX: \xfc\r\nContent-Length: 0\r\n\r\n")
                .is_ok_and(|done| done)
        );
    }

    #[test]
    fn requests_name_the_host() {
        let text = String::from_utf8(request("/a", "::1")).expect("text");
        assert!(text.starts_with("GET /a HTTP/1.1\r\nHost: [::1]\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\n"));
    }
}
