//! What a wait reports of the handshakes that can go on.

use std::ffi::c_int;
use std::ptr;

use super::store::{with_ready, with_table};
use crate::connections;
use crate::wait_calls::{Reported, WaitCall};
use crate::waits::Socket;

/// Returns whether any can go on that this call can report.
pub(crate) fn are_ready(call: &impl WaitCall) -> bool {
    let can_be_reported = |ssl: &usize| socket_to_report(*ssl).is_some_and(|socket| call.can_report(socket));
    with_ready(|ready| ready.iter().any(can_be_reported)).unwrap_or(false)
}

/// Reports to the server the handshakes that can go on, as far as this call can. Those that the server watches
/// elsewhere, or not at all, stay: its next call for them goes on.
pub(crate) fn deliver(mut call: impl WaitCall) -> c_int {
    let mut report = |ssl: usize| {
        let reported = socket_to_report(ssl).and_then(|socket| call.report(socket));
        if reported.is_some() {
            with_table(|table| {
                let one = table.get(&ssl)?;
                one.reports_left.set(one.reports_left.get().saturating_sub(1));
                Some(())
            });
        }
        reported
    };
    let mut any = false;
    with_ready(|ready| {
        ready.retain(|ssl| {
            let reported = report(*ssl);
            any |= reported.is_some();
            // The server asks the instance next, which must have something to report.
            reported != Some(Reported::Socket)
        });
    });
    match any {
        false => 0,
        true => call.return_value(),
    }
}

/// The socket of the connection at this address, unless the connection is gone.
fn socket_to_report(ssl: usize) -> Option<Socket> {
    let found = with_table(|table| table.get(&ssl).map(|one| (one.number, one.socket()))).flatten();
    let (number, socket) = found?;
    let is_gone = connections::is_abandoned(ptr::without_provenance_mut(ssl));
    (!is_gone && !connections::is_lost(number)).then_some(socket)
}
