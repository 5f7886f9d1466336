//! What a wait reports of the handshakes that can go on.

use std::ffi::c_int;
use std::ptr;

use super::store::{with_ready, with_table};
use crate::connections;
use crate::wait_calls::{Told, Watch};
use crate::waits::Socket;

/// Returns whether any can go on of which this wait can tell.
pub(crate) fn are_ready(watch: &impl Watch) -> bool {
    let is_told = |ssl: &usize| told_by(*ssl).is_some_and(|socket| watch.tells(socket));
    with_ready(|ready| ready.iter().any(is_told)).unwrap_or(false)
}

/// Tells the server of the handshakes that can go on, as far as this wait can. Those that the server watches elsewhere,
/// or not at all, stay: its next call for them goes on.
pub(crate) fn deliver(mut watch: impl Watch) -> c_int {
    let mut tell = |ssl: usize| {
        let told = told_by(ssl).and_then(|socket| watch.tell(socket));
        if told.is_some() {
            with_table(|table| {
                let one = table.get(&ssl)?;
                one.tellings.set(one.tellings.get().saturating_sub(1));
                Some(())
            });
        }
        told
    };
    let mut any = false;
    with_ready(|ready| {
        ready.retain(|ssl| {
            let told = tell(*ssl);
            any |= told.is_some();
            // The server asks the instance next, which must have something to tell.
            told != Some(Told::ItsSocket)
        });
    });
    match any {
        false => 0,
        true => watch.answer(),
    }
}

/// The socket by which the server is told of the connection at this address.
fn told_by(ssl: usize) -> Option<Socket> {
    let found = with_table(|table| table.get(&ssl).map(|one| (one.number, one.socket()))).flatten();
    let (number, socket) = found?;
    let is_gone = connections::is_abandoned(ptr::without_provenance_mut(ssl));
    (!is_gone && !connections::is_lost(number)).then_some(socket)
}
