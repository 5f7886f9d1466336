//! Places that a connection takes within the limits, and gives back.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::front::site::Site;
use crate::front::sources::{Place, PlaceOf};
use crate::observe::stats::Refusal;
use crate::shared::Shared;

/// A connection's share of the limits, given back when dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    places: Places,
    in_handshake: bool,
}

/// Places that a connection holds within its source's limits, given back when dropped.
#[derive(Debug)]
struct Places {
    shared: Arc<Shared>,
    handshake: Option<Place>,
    /// `None`: its source has no such limit.
    connection: Option<Place>,
}

impl Admission {
    /// Admits a connection from `source`, if it is within all limits. `None`: the source is not known
    /// yet, and must be set by [`Admission::attribute`]. Where the limits of the whole server are
    /// reached, `evict` may end another connection; it says whether it has.
    pub(crate) fn ask(
        shared: &Arc<Shared>,
        site: &Site,
        source: Option<IpAddr>,
        mut evict: impl FnMut() -> bool,
    ) -> Result<Self, Refusal> {
        // The source's limit comes first: a source that has reached it must not close connections
        // of others.
        let mut places = Places {
            shared: shared.clone(),
            handshake: None,
            connection: None,
        };
        if let Some(source) = source {
            places.take(site, source)?;
        }
        let mut refusal = Refusal::Handshakes;
        for _ in 0..MOST_ATTEMPTS {
            match Self::count(shared, site) {
                Ok(()) => {
                    return Ok(Self {
                        places,
                        in_handshake: true,
                    });
                }
                Err(_) if evict() => {}
                Err(why) => {
                    refusal = why;
                    break;
                }
            }
        }
        Err(refusal)
    }

    /// Counts the connection to its source, if that is within its limits.
    pub(crate) fn attribute(&mut self, site: &Site, source: IpAddr) -> Result<(), Refusal> {
        self.places.take(site, source)
    }

    /// A number for the source: most sources have others.
    pub(crate) fn source(&self) -> u16 {
        self.places.handshake.as_ref().map_or(0, |place| place.cell)
    }

    /// Ends the handshake's share; the connection's remains.
    pub(crate) fn handshake_done(&mut self) {
        self.handshake_failed();
        self.places.give_back_handshake();
    }

    /// Ends the server's share of a handshake that has failed. The source's remains until the connection is closed:
    /// it lingers, and one source must not fill the server with such connections.
    pub(crate) fn handshake_failed(&mut self) {
        if std::mem::take(&mut self.in_handshake) {
            self.places.shared.handshakes.fetch_sub(1, Relaxed);
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
        self.handshake_failed();
        self.places.shared.connections.fetch_sub(1, Relaxed);
    }
}

impl Places {
    fn take(&mut self, site: &Site, source: IpAddr) -> Result<(), Refusal> {
        let (sources, limits) = (&self.shared.sources, &site.source);
        let source = sources.source(source, limits);
        if !sources.within_rate(source, limits) {
            return Err(Refusal::SourceRate);
        }
        let place = sources.place(source, PlaceOf::Handshake, limits.handshakes);
        self.handshake = Some(place.ok_or(Refusal::SourceHandshakes)?);
        if let Some(most) = limits.connections {
            let place = sources.place(source, PlaceOf::Connection, most);
            self.connection = Some(place.ok_or(Refusal::SourceConnections)?);
        }
        Ok(())
    }

    fn give_back_handshake(&mut self) {
        if let Some(place) = self.handshake.take() {
            self.shared.sources.give_back(place);
        }
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.give_back_handshake();
        if let Some(place) = self.connection.take() {
            self.shared.sources.give_back(place);
        }
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
