//! One connection's TLS state: in our hands, or inside a step that waits for the engine.

use crate::error::Fault;
use crate::lanes::Lane;
use crate::verifier;
use rustls::client::ClientConnection;
use rustls::{ClientConfig, IoState, SignatureScheme};
use rustls_pki_types::ServerName;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use widelane_rustls::{Handshake, HandshakeError};

/// TLS state that may be away for the time of a step.
pub(crate) struct Tls {
    state: State,
    /// What announces it to the driver, unless it is away too.
    handshake: Option<Handshake>,
    /// What the server has signed its handshake with.
    pub(crate) signature: Option<SignatureScheme>,
}

enum State {
    Here(Box<ClientConnection>),
    Away(Pin<Box<dyn Future<Output = Returned>>>),
    /// Never seen from outside: between two of the others, or it did not begin.
    Nowhere,
}

type Returned = (
    Option<Box<ClientConnection>>,
    Handshake,
    Result<Option<IoState>, HandshakeError>,
);

impl Tls {
    /// Makes the hello. With a lane, that may take until [`Tls::poll`] says so.
    pub(crate) fn start(
        config: &Arc<ClientConfig>,
        name: &ServerName<'static>,
        lane: Option<Lane<'_>>,
    ) -> Result<Self, Fault> {
        let (config, name) = (Arc::clone(config), name.clone());
        let state = match lane {
            None => {
                let tls = ClientConnection::new(config, name).map_err(Fault::from_tls)?;
                State::Here(Box::new(tls))
            }
            Some(lane) => {
                let mut handshake = lane.driver.handshake();
                State::Away(Box::pin(async move {
                    match handshake.start_client(config, name).await {
                        Ok(tls) => (Some(tls), handshake, Ok(None)),
                        Err(error) => (None, handshake, Err(error)),
                    }
                }))
            }
        };
        let mut tls = Self {
            state,
            handshake: None,
            signature: None,
        };
        if let Some(lane) = lane
            && let Poll::Ready(Err(fault)) = tls.poll(lane)
        {
            return Err(fault);
        }
        Ok(tls)
    }

    /// Processes what was read. With a lane, a step of the handshake may stay away until
    /// [`Tls::poll`] says so.
    pub(crate) fn process(&mut self, lane: Option<Lane<'_>>) -> Poll<Result<IoState, Fault>> {
        let Some(lane) = lane.filter(|_| self.here().is_handshaking()) else {
            let result = self.here().process_new_packets();
            self.note_signature();
            return Poll::Ready(result.map_err(Fault::from_tls));
        };
        let State::Here(tls) = std::mem::replace(&mut self.state, State::Nowhere) else {
            unreachable!("{HERE}");
        };
        let announced = self.handshake.take();
        let mut handshake = announced.unwrap_or_else(|| lane.driver.handshake());
        self.state = State::Away(Box::pin(async move {
            let (tls, result) = handshake.process(tls).await;
            (Some(tls), handshake, result.map(Some))
        }));
        self.poll(lane).map(|result| Ok(result?.expect(PROCESSED)))
    }

    /// Goes on with a step that is away. `None` if it was the first, which makes the hello.
    pub(crate) fn poll(&mut self, lane: Lane<'_>) -> Poll<Result<Option<IoState>, Fault>> {
        let State::Away(step) = &mut self.state else {
            unreachable!("polled a step that is not away");
        };
        let polled = step.as_mut().poll(&mut Context::from_waker(lane.waker));
        // The verifier runs inside of this poll, if it runs.
        self.note_signature();
        polled.map(|(tls, handshake, result)| {
            self.state = tls.map_or(State::Nowhere, State::Here);
            self.handshake = Some(handshake);
            result.map_err(|error| match error {
                HandshakeError::Tls(error) => Fault::from_tls(error),
                error => Fault::Tls(rustls::Error::General(error.to_string())),
            })
        })
    }

    pub(crate) fn is_away(&self) -> bool {
        matches!(self.state, State::Away(_))
    }

    /// The connection, which must not be away.
    pub(crate) fn here(&mut self) -> &mut ClientConnection {
        match &mut self.state {
            State::Here(tls) => tls,
            _ => unreachable!("{HERE}"),
        }
    }

    /// The connection, unless it is away.
    pub(crate) fn get(&self) -> Option<&ClientConnection> {
        match &self.state {
            State::Here(tls) => Some(tls),
            _ => None,
        }
    }

    fn note_signature(&mut self) {
        self.signature = verifier::take_signature().or(self.signature);
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Tls");
        debug.field("away", &self.is_away()).finish_non_exhaustive()
    }
}

const HERE: &str = "nothing touches a connection while it is away";
const PROCESSED: &str = "only the first step has nothing to say";
