//! One connection's TLS state, or the suspended step that has it.

use crate::batching::StepContext;
use crate::error::Fault;
use crate::verifier;
use rustls::client::ClientConnection;
use rustls::{ClientConfig, IoState, SignatureScheme};
use rustls_pki_types::ServerName;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use widelane_rustls::{Handshake, HandshakeError};

/// A TLS connection. While a step is suspended, the step owns it.
pub(crate) struct Tls {
    state: State,
    /// Announces the connection to the driver. A suspended step owns it, too.
    handshake: Option<Handshake>,
    /// The algorithm of the server's signature.
    pub(crate) signature: Option<SignatureScheme>,
}

enum State {
    Ready(Box<ClientConnection>),
    Suspended(Pin<Box<dyn Future<Output = Returned>>>),
    /// Empty: only inside a method, or after the first step has failed.
    Taken,
}

type Returned = (
    Option<Box<ClientConnection>>,
    Handshake,
    Result<Option<IoState>, HandshakeError>,
);

impl Tls {
    /// Makes the ClientHello. With a context, the step may be suspended; then [`Tls::poll`] ends
    /// it.
    pub(crate) fn start(
        config: &Arc<ClientConfig>,
        name: &ServerName<'static>,
        context: Option<StepContext<'_>>,
    ) -> Result<Self, Fault> {
        let (config, name) = (Arc::clone(config), name.clone());
        let state = match context {
            None => {
                let tls = ClientConnection::new(config, name).map_err(Fault::from_tls)?;
                State::Ready(Box::new(tls))
            }
            Some(context) => {
                let mut handshake = context.driver.handshake();
                State::Suspended(Box::pin(async move {
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
        if let Some(context) = context
            && let Poll::Ready(Err(fault)) = tls.poll(context)
        {
            return Err(fault);
        }
        Ok(tls)
    }

    /// Processes what was read. With a context, a step of the handshake may be suspended; then
    /// [`Tls::poll`] ends it.
    pub(crate) fn process(&mut self, context: Option<StepContext<'_>>) -> Poll<Result<IoState, Fault>> {
        let Some(context) = context.filter(|_| self.connection().is_handshaking()) else {
            let result = self.connection().process_new_packets();
            self.note_signature();
            return Poll::Ready(result.map_err(Fault::from_tls));
        };
        let State::Ready(tls) = std::mem::replace(&mut self.state, State::Taken) else {
            unreachable!("{NOT_SUSPENDED}");
        };
        let announced = self.handshake.take();
        let mut handshake = announced.unwrap_or_else(|| context.driver.handshake());
        self.state = State::Suspended(Box::pin(async move {
            let (tls, result) = handshake.process(tls).await;
            (Some(tls), handshake, result.map(Some))
        }));
        self.poll(context).map(|result| Ok(result?.expect(PROCESSED)))
    }

    /// Goes on with the suspended step. `None` if it was the first, which makes the ClientHello.
    pub(crate) fn poll(&mut self, context: StepContext<'_>) -> Poll<Result<Option<IoState>, Fault>> {
        let State::Suspended(step) = &mut self.state else {
            unreachable!("polled without a suspended step");
        };
        let polled = step.as_mut().poll(&mut Context::from_waker(context.waker));
        // If the verifier runs, it runs inside this poll.
        self.note_signature();
        polled.map(|(tls, handshake, result)| {
            self.state = tls.map_or(State::Taken, State::Ready);
            self.handshake = Some(handshake);
            result.map_err(|error| match error {
                HandshakeError::Tls(error) => Fault::from_tls(error),
                error => Fault::Tls(rustls::Error::General(error.to_string())),
            })
        })
    }

    pub(crate) fn is_suspended(&self) -> bool {
        matches!(self.state, State::Suspended(_))
    }

    /// The connection. No step must be suspended.
    pub(crate) fn connection(&mut self) -> &mut ClientConnection {
        match &mut self.state {
            State::Ready(tls) => tls,
            _ => unreachable!("{NOT_SUSPENDED}"),
        }
    }

    /// The connection, unless a step is suspended.
    pub(crate) fn get(&self) -> Option<&ClientConnection> {
        match &self.state {
            State::Ready(tls) => Some(tls),
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
        debug.field("suspended", &self.is_suspended()).finish_non_exhaustive()
    }
}

const NOT_SUSPENDED: &str = "a connection is used only while no step is suspended";
const PROCESSED: &str = "only the first step returns no state";
