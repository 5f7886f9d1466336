//! Checks of backends: a task asks each address from time to time whether it is up, for all workers.

use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSlice, Read};
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::ServerName;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::back::backend::{BackendStream, Socket};
use crate::back::backend_tls::shake;
use crate::back::pool::{Subject, Upstreams};
use crate::config::{CheckKind, ProxyVersion};
use crate::handshaker::ClientHandshake;
use crate::housekeeping::spawn_persistent;
use crate::io::{PollSocket, read_tls};

/// Checks what is to be checked from now on, also addresses that come later. Never ends.
pub(crate) async fn run(upstreams: &Upstreams) {
    let _all_up = AllUp(upstreams);
    let places = Arc::new(Semaphore::new(MOST_AT_ONCE));
    let mut checking: HashMap<String, Checking> = HashMap::new();
    loop {
        let mut wanted: HashMap<String, Subject> = HashMap::new();
        for subject in upstreams.checked() {
            let address = subject.member.address.to_string();
            // The newest pool with an address says how it is checked.
            wanted.insert(address, subject);
        }
        checking.retain(|address, one| {
            let stays = wanted.contains_key(address);
            if !stays {
                one.subject.member.set_down(false);
            }
            stays
        });
        for (address, subject) in wanted {
            if checking.get(&address).is_none_or(|one| !one.is_of(&subject)) {
                checking.insert(address, Checking::begin(subject, &places));
            }
        }
        sleep(LOOK).await;
    }
}

/// At the end of checks, none would say any more that an address is up again.
struct AllUp<'a>(&'a Upstreams);

impl Drop for AllUp<'_> {
    fn drop(&mut self) {
        for upstream in self.0.in_use() {
            upstream.set_down(false);
        }
    }
}

/// A task that checks one address, until this is dropped.
struct Checking {
    subject: Subject,
    task: AbortHandle,
}

impl Checking {
    fn begin(subject: Subject, places: &Arc<Semaphore>) -> Self {
        let (checked, places) = (subject.clone(), places.clone());
        let check = async move || check_for_ever(&checked, &places).await;
        Self {
            subject,
            task: spawn_persistent("the checks of an address", check),
        }
    }

    /// Returns whether `other` is checked in the same way.
    fn is_of(&self, other: &Subject) -> bool {
        let one = &self.subject;
        let tls_configs = [&one.tls_config, &other.tls_config].map(|one| one.as_ref().map(Arc::as_ptr));
        Arc::ptr_eq(&one.member.upstream, &other.member.upstream)
            && one.check == other.check
            && tls_configs[0] == tls_configs[1]
            && (&one.member.name, &one.member.host) == (&other.member.name, &other.member.host)
    }
}

impl Drop for Checking {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn check_for_ever(subject: &Subject, places: &Semaphore) {
    let wanted = &subject.check.wanted;
    let upstream = &subject.member.upstream;
    // Also the addresses of one backend are not checked all at the same moment.
    sleep(wanted.interval.min(LOOK).mul_f64(chance())).await;
    let mut in_sequence = 0;
    loop {
        let result = {
            let _place = places.acquire().await;
            let probed = timeout(wanted.timeout, probe(subject)).await;
            probed.unwrap_or_else(|_| Err("no answer in time".into()))
        };
        upstream.checked(result.is_ok());
        let differs = result.is_ok() == upstream.is_down();
        in_sequence = if differs { in_sequence + 1 } else { 0 };
        let enough = if upstream.is_down() { wanted.rise } else { wanted.fall };
        if in_sequence >= enough {
            in_sequence = 0;
            upstream.set_down(result.is_err());
            let backend = &upstream.address;
            match &result {
                Ok(()) => tracing::info!(%backend, "a check finds that it is up again"),
                Err(reason) => tracing::warn!(
                    %backend,
                    reason,
                    "checks have failed; it gets connections only while no other address is up"
                ),
            }
        }
        sleep(wanted.interval.mul_f64(0.9 + 0.2 * chance())).await;
    }
}

/// One check.
async fn probe(subject: &Subject) -> Result<(), String> {
    let wanted = &subject.check.wanted;
    let address = &subject.member.address;
    let mut socket = Socket::connect(address).await.map_err(text)?;
    if wanted.kind == CheckKind::Tcp {
        return Ok(());
    }
    let header: &[u8] = match subject.check.proxy_header {
        None => b"",
        Some(ProxyVersion::V1) => b"PROXY UNKNOWN\r\n",
        Some(ProxyVersion::V2 | ProxyVersion::V2Records) => b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
    };
    let mut sent = 0;
    while sent < header.len() {
        let rest = [IoSlice::new(&header[sent..])];
        match poll_fn(|cx| socket.poll_send(cx, &rest)).await.map_err(text)? {
            0 => return Err("it takes no bytes".into()),
            bytes => sent += bytes,
        }
    }
    let mut tls = None;
    if let (Some(tls_config), Some(name)) = (&subject.tls_config, &subject.member.name) {
        // No sessions: a check is to see the certificate.
        let config = tls_config.config(usize::MAX, address, None);
        let shaken = shake(&mut socket, ClientHandshake::alone(), config, name.clone()).await;
        tls = Some(shaken.map_err(text)?);
    }
    let mut backend = BackendStream { socket, tls };
    if wanted.kind == CheckKind::Http {
        let of_certificate = subject.member.name.as_ref().map(ServerName::to_str);
        let host = of_certificate.as_deref().or(subject.member.host.as_deref());
        let host = host.unwrap_or("localhost");
        let path = wanted.path.as_deref().unwrap_or("/");
        let status = ask(&mut backend, path, host).await?;
        if !(200..400).contains(&status) {
            return Err(format!("it answers with status {status}"));
        }
    }
    let _ = poll_fn(|cx| backend.poll_shutdown(cx)).await;
    Ok(())
}

/// The status with which a server answers to GET.
async fn ask(backend: &mut BackendStream, path: &str, host: &str) -> Result<u16, String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: widelane\r\nConnection: close\r\n\r\n");
    let mut rest = request.as_bytes();
    while !rest.is_empty() {
        match poll_fn(|cx| backend.poll_write(cx, rest)).await.map_err(text)? {
            0 => return Err("it takes no bytes".into()),
            bytes => rest = &rest[bytes..],
        }
    }
    poll_fn(|cx| backend.poll_flush(cx)).await.map_err(text)?;
    let mut answer = Vec::new();
    let mut block = [0; 1024];
    loop {
        let read = receive(backend, &mut block).await.map_err(text)?;
        if read == 0 {
            return Err("it closes without an answer".into());
        }
        answer.extend_from_slice(&block[..read]);
        if let Some(status) = status_of(&answer)? {
            return Ok(status);
        }
        if answer.len() >= LONGEST_STATUS {
            return Err("its answer is no HTTP".into());
        }
    }
}

/// The status in an answer, not that of an interim one (RFC 9110, section 15.2). `Ok(None)`: there is more to come.
pub(crate) fn status_of(answer: &[u8]) -> Result<Option<u16>, String> {
    let mut rest = answer;
    loop {
        let status = first_status_of(rest)?;
        let is_interim = |status: &u16| (100..200).contains(status) && *status != SWITCHING;
        if !status.as_ref().is_some_and(is_interim) {
            return Ok(status);
        }
        match behind_head(rest) {
            Some(behind) => rest = behind,
            None => return Ok(None),
        }
    }
}

fn first_status_of(answer: &[u8]) -> Result<Option<u16>, String> {
    // The line of the status only: nothing else matters, however long it is.
    let line = match answer.iter().position(|byte| *byte == b'\n') {
        Some(end) => &answer[..=end],
        None => answer,
    };
    let mut response = httparse::Response::new(&mut []);
    match response.parse(line) {
        // Half a line may go on in any way.
        Ok(_) => Ok(response.code.filter(|_| line.ends_with(b"\n"))),
        Err(error) => Err(format!("its answer is no HTTP: {error}")),
    }
}

/// Bytes behind the empty line. `None`: that is still to come.
fn behind_head(answer: &[u8]) -> Option<&[u8]> {
    let mut rest = answer;
    loop {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let line;
        (line, rest) = rest.split_at(end + 1);
        if matches!(line, b"\n" | b"\r\n") {
            return Some(rest);
        }
    }
}

/// Reads some bytes, decrypted if there is TLS. 0: the end.
async fn receive(backend: &mut BackendStream, block: &mut [u8]) -> io::Result<usize> {
    let BackendStream { socket, tls } = backend;
    let Some(tls) = tls else {
        return poll_fn(|cx| socket.poll_receive(cx, block)).await;
    };
    loop {
        match tls.reader().read(block) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
        poll_fn(|cx| read_tls(socket, tls, cx)).await?;
        tls.process_new_packets().map_err(io::Error::other)?;
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// From 0 to 1, without end.
fn chance() -> f64 {
    let random = RandomState::new().hash_one(());
    (random >> 32) as f64 / f64::from(u32::MAX)
}

/// Time within which addresses that come and go are noticed.
const LOOK: Duration = Duration::from_millis(500);
const MOST_AT_ONCE: usize = 64;
const LONGEST_STATUS: usize = 4096;
/// Behind this status comes another protocol, and no final status.
const SWITCHING: u16 = 101;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_read_as_soon_as_its_line_is_there() {
        let answer = b"HTTP/1.1 204 No Content\r\nServer: x\r\n\r\n";
        for end in 0..answer.len() {
            let status = status_of(&answer[..end]).unwrap();
            let known = end > answer.iter().position(|byte| *byte == b'\n').unwrap();
            assert!(!known || status == Some(204), "{end}: {status:?}");
            assert!(status.is_none() || status == Some(204), "{end}: {status:?}");
        }
        assert!(status_of(b"220 mail.example ESMTP\r\n").is_err());
        assert_eq!(status_of(b"HTTP/1.0 500 \r\n"), Ok(Some(500)));
    }

    #[test]
    fn interim_answers_are_passed_over() {
        let interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        for end in 0..=interim.len() {
            assert_eq!(status_of(&interim[..end]), Ok(None), "{end}");
        }
        for (line, status) in [("HTTP/1.1 200 OK\r\n", 200), ("HTTP/1.1 503 \n", 503)] {
            let whole = [interim, line.as_bytes()].concat();
            assert_eq!(status_of(&whole), Ok(Some(status)));
        }
        assert_eq!(status_of(b"HTTP/1.1 100 \n\nHTTP/1.1 204 \n"), Ok(Some(204)));
        // Another protocol would follow.
        assert_eq!(status_of(b"HTTP/1.1 101 \r\n\r\n\x16"), Ok(Some(101)));
        assert!(status_of(b"HTTP/1.1 100 \r\n\r\n220 mail.example\r\n").is_err());
    }
}
