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
    in_handshake: bool,
    /// Of its source, while the handshake lasts.
    place: Option<Place>,
}

impl Admission {
    /// Admits a connection from `source`, if it is within all limits. `None`: the source is not known
    /// yet, and must be told by [`Admission::attribute`]. Where the limits of the whole server are
    /// reached, `make_room` may end another connection; it says whether it has.
    pub(crate) fn ask(
        shared: &Arc<Shared>,
        site: &Site,
        source: Option<IpAddr>,
        mut make_room: impl FnMut() -> bool,
    ) -> Result<Self, Refusal> {
        // The source's limit comes first: a source that has reached it must not close connections
        // of others.
        let place = source.map(|source| Self::place(shared, site, source));
        let place = place.transpose()?;
        let mut refusal = Refusal::Handshakes;
        for _ in 0..MOST_ATTEMPTS {
            match Self::count(shared, site) {
                Ok(()) => {
                    return Ok(Self {
                        shared: shared.clone(),
                        in_handshake: true,
                        place,
                    });
                }
                Err(_) if make_room() => {}
                Err(why) => {
                    refusal = why;
                    break;
                }
            }
        }
        if let Some(place) = place {
            shared.sources.give_back(place);
        }
        Err(refusal)
    }

    /// Counts the connection to its source, if that is within its limits.
    pub(crate) fn attribute(&mut self, site: &Site, source: IpAddr) -> Result<(), Refusal> {
        self.place = Some(Self::place(&self.shared, site, source)?);
        Ok(())
    }

    /// Ends the handshake's share; the connection's remains.
    pub(crate) fn handshake_done(&mut self) {
        if std::mem::take(&mut self.in_handshake) {
            self.shared.handshakes.fetch_sub(1, Relaxed);
        }
        if let Some(place) = self.place.take() {
            self.shared.sources.give_back(place);
        }
    }

    fn place(shared: &Shared, site: &Site, source: IpAddr) -> Result<Place, Refusal> {
        let source = shared.sources.source(source, &site.source);
        if !shared.sources.within_rate(source, &site.source) {
            return Err(Refusal::SourceRate);
        }
        let place = shared.sources.place(source, &site.source);
        place.ok_or(Refusal::SourceHandshakes)
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
