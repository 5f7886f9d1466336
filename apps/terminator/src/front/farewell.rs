//! The end of a connection whose client gets no further.

use std::task::{Poll, ready};
use std::time::Duration;

use rustls::ServerConnection;
use tokio::time::timeout;

use crate::front::admission::Admission;
use crate::front::client::Client;
use crate::front::idle_queue::Kind;
use crate::io::PollSocket;
use crate::turn::Turn;
use crate::worker_state::WorkerState;

/// Sends what is due (an alert, close_notify) if the socket takes it now, and ends our direction.
pub(super) async fn say_goodbye(client: &mut Client, tls: &mut ServerConnection) {
    send_last_words(client, tls);
    let _ = client.shut_down();
}

/// Reads what the client still sends, for a while and, if `is_bounded`, not much, and drops it. A socket
/// that is closed with unread bytes in it sends a reset, by which the client may lose the alert that came
/// before.
pub(super) async fn linger(client: &mut Client, worker: &WorkerState, admission: Admission, is_bounded: bool) {
    let mut left = if is_bounded { LINGER_BYTES } else { usize::MAX };
    let pending = worker.idle.enter(Kind::Lingering, admission);
    let drained = pending.until(|cx| {
        let mut turn = Turn::default();
        while left > 0 {
            ready!(turn.poll(cx));
            let mut scratch = worker.scratch.borrow_mut();
            match ready!(client.poll_receive(cx, &mut scratch)) {
                Ok(0) | Err(_) => break,
                Ok(read) => {
                    left = left.saturating_sub(read);
                    turn.moved(read);
                }
            }
        }
        Poll::Ready(())
    });
    // Boxed: a connection that is relayed must not keep room for it.
    let _ = timeout(LINGER, Box::pin(drained)).await;
}

/// Hands what rustls has queued to the kernel, as much as it takes. The kernel sends it together
/// with the end of the stream, which the caller must cause at once.
pub(super) fn send_last_words(client: &Client, tls: &mut ServerConnection) {
    while tls.wants_write() && tls.write_tls(&mut client.last_words()).is_ok_and(|n| n > 0) {}
}

/// Time for which a client that gets no further may go on sending, and for how many bytes if it was refused.
const LINGER: Duration = Duration::from_secs(5);
const LINGER_BYTES: usize = 256 * 1024;
