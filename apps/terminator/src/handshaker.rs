//! Handshakes as a worker runs them: each operation at once, or suspended until a pass has done it.

use std::future::poll_fn;
use std::ops::DerefMut;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ClientConnection, ConnectionCommon, ServerConnection};
use rustls_pki_types::ServerName;
use widelane_rustls::{Driver, HandshakeError, Observed};

use crate::crypto::Crypto;
use crate::front::transcript::Changed;
use crate::material::resumption::Session;
use crate::observe::page;
use crate::observe::stats::TicketRefusal;

/// Runs the handshakes of one worker. With a driver, a handshake is suspended at each operation, which then joins
/// those of other connections; without one, rustls does each operation at once.
#[derive(Default)]
pub(crate) struct Handshaker(Option<Rc<Driver>>);

/// A handshake in progress.
pub(crate) struct Handshake {
    session: Session,
    part: Part,
    /// Time for which the client has waited for the server so far, apart from the network.
    pub(crate) took: Duration,
}

/// A handshake in progress in which this server is the client.
pub(crate) struct ClientHandshake(Part);

/// The code that does the operations of a handshake.
enum Part {
    /// rustls, each at once.
    Plain(Observed),
    /// The driver: other handshakes may wait for the operations of this one.
    Batched(widelane_rustls::Handshake),
}

/// The reason for which a step of a handshake failed.
#[derive(Debug)]
pub(crate) enum ProcessFailure {
    /// The engine's queue is full.
    Overloaded,
    /// An operation failed, and the client is not to blame.
    Internal(String),
    /// The client broke the protocol, or no agreement was possible.
    Tls(rustls::Error),
}

impl Handshaker {
    /// Makes one for the calling thread, inside its event loop.
    pub(crate) fn new(crypto: &Crypto) -> Self {
        Self(crypto.engine().map(|engine| {
            let driver = Driver::new(engine);
            tokio::task::spawn_local(driver.clone().flusher());
            driver
        }))
    }

    /// Announces the handshake of a connection that was just accepted.
    pub(crate) fn handshake(&self) -> Handshake {
        Handshake {
            session: Session::default(),
            part: self.part(),
            took: Duration::ZERO,
        }
    }

    /// Counts a handshake that has come to its end, and the time that it took of the server, where `widelane status`
    /// looks.
    pub(crate) fn count(&self, is_resumed: bool, took: Duration) {
        if let Some(driver) = &self.0 {
            page::count(driver.engine(), is_resumed, took);
        }
    }

    /// Announces a handshake with a backend.
    pub(crate) fn client_handshake(&self) -> ClientHandshake {
        ClientHandshake(self.part())
    }

    fn part(&self) -> Part {
        match &self.0 {
            None => Part::Plain(Observed::default()),
            Some(driver) => Part::Batched(driver.handshake()),
        }
    }
}

impl Handshake {
    /// Returns why a ticket that the client offered was refused, if none was accepted.
    pub(crate) fn refused_ticket(&self) -> Option<TicketRefusal> {
        self.session.refused_ticket()
    }

    /// Takes note of a ClientHello that rustls gets in another form.
    pub(crate) fn change(&mut self, changed: Changed) {
        self.session.change(changed);
    }

    /// Processes the bytes that `tls` has received. The connection comes back also with an error,
    /// so that its alert can be sent. If the future is dropped, so is the connection.
    pub(crate) async fn process(
        &mut self,
        tls: Box<ServerConnection>,
    ) -> (Box<ServerConnection>, Result<(), ProcessFailure>) {
        let since = Instant::now();
        let Self { session, part, .. } = self;
        let (tls, result) = {
            let mut step = pin!(step(part, tls));
            poll_fn(|cx| session.enter(|| step.as_mut().poll(cx))).await
        };
        session.settle(tls.handshake_kind());
        self.took += since.elapsed();
        (tls, result)
    }
}

impl ClientHandshake {
    /// On a thread without a driver.
    pub(crate) fn alone() -> Self {
        Self(Part::Plain(Observed::default()))
    }

    /// Makes the connection, with the keys of its ClientHello.
    pub(crate) async fn start(
        &mut self,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Box<ClientConnection>, ProcessFailure> {
        match &mut self.0 {
            Part::Plain(observed) => {
                let tls = ClientConnection::new(config, name).map(Box::new);
                let tls = tls.map_err(ProcessFailure::Tls)?;
                observed.step(&tls);
                Ok(tls)
            }
            Part::Batched(handshake) => {
                let started = handshake.start_client(config, name).await;
                started.map_err(ProcessFailure::from)
            }
        }
    }

    /// Processes the bytes that `tls` has received, as [`Handshake::process`] does.
    pub(crate) async fn process(
        &mut self,
        tls: Box<ClientConnection>,
    ) -> (Box<ClientConnection>, Result<(), ProcessFailure>) {
        step(&mut self.0, tls).await
    }
}

impl From<HandshakeError> for ProcessFailure {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Overloaded => Self::Overloaded,
            HandshakeError::Tls(error @ rustls::Error::Other(_)) => Self::Internal(error.to_string()),
            HandshakeError::Tls(error) => Self::Tls(error),
            error => Self::Internal(error.to_string()),
        }
    }
}

async fn step<C, D>(part: &mut Part, mut tls: Box<C>) -> (Box<C>, Result<(), ProcessFailure>)
where
    C: DerefMut<Target = ConnectionCommon<D>> + 'static,
    D: 'static,
{
    let handshake = match part {
        Part::Batched(handshake) => handshake,
        Part::Plain(observed) => {
            observed.step(&tls);
            let result = tls.process_new_packets();
            observed.stepped(&tls, result.as_ref().err());
            return (tls, result.map(drop).map_err(ProcessFailure::Tls));
        }
    };
    let (tls, result) = handshake.process(tls).await;
    (tls, result.map(drop).map_err(ProcessFailure::from))
}
