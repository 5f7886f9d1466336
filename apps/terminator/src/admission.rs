//! What a connection takes from the limits, and gives back.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::shared::{Shared, Site};
use crate::sources::Place;
use crate::stats::Refusal;

/// A connection's share of the limits, given back when dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    shared: Arc<Shared>,
    /// While the handshake lasts.
    place: Option<Place>,
}

impl Admission {
    /// Admits a connection from `peer`, if it is within all limits. Where the limits of the whole
    /// server are reached, `make_room` may end another connection; it says whether it has.
    pub(crate) fn ask(
        shared: &Arc<Shared>,
        site: &Site,
        peer: IpAddr,
        mut make_room: impl FnMut() -> bool,
    ) -> Result<Self, Refusal> {
        let source = shared.sources.source(peer, &site.source);
        if !shared.sources.within_rate(source, &site.source) {
            return Err(Refusal::SourceRate);
        }
        // The source's limit comes first: a source that has reached it must not close connections
        // of others.
        let place = shared.sources.place(source, &site.source);
        let place = place.ok_or(Refusal::SourceHandshakes)?;
        for _ in 0..MOST_ATTEMPTS {
            let refusal = match Self::count(shared, site) {
                Ok(()) => {
                    return Ok(Self {
                        shared: shared.clone(),
                        place: Some(place),
                    });
                }
                Err(refusal) => refusal,
            };
            if !make_room() {
                shared.sources.give_back(place);
                return Err(refusal);
            }
        }
        shared.sources.give_back(place);
        Err(Refusal::Handshakes)
    }

    /// Ends the handshake's share; the connection's remains.
    pub(crate) fn handshake_done(&mut self) {
        if let Some(place) = self.place.take() {
            self.shared.handshakes.fetch_sub(1, Relaxed);
            self.shared.sources.give_back(place);
        }
    }

    fn count(shared: &Shared, site: &Site) -> Result<(), Refusal> {
        if !add_below(&shared.connections, site.most_connections) {
            return Err(Refusal::Connections);
        }
        if !add_below(&shared.handshakes, site.limits.handshakes) {
            shared.connections.fetch_sub(1, Relaxed);
            return Err(Refusal::Handshakes);
        }
        Ok(())
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.handshake_done();
        self.shared.connections.fetch_sub(1, Relaxed);
    }
}

fn add_below(count: &AtomicUsize, limit: usize) -> bool {
    let added = count.fetch_add(1, Relaxed) < limit;
    if !added {
        count.fetch_sub(1, Relaxed);
    }
    added
}

/// A place that this worker frees can go to another worker's connection. So many are freed at most.
const MOST_ATTEMPTS: usize = 4;
