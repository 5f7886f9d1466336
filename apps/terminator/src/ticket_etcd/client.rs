//! Asks etcd and writes into it, on a thread of its own.
//!
//! One endpoint is asked at a time. If it does not answer in time, or has no leader, the next one is. All
//! that is read comes from one linearizable transaction, which a member without a majority cannot answer. All
//! that is written is a transaction, which fails if the lease is lost or another instance has written.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, Identity, PutOptions, TlsOptions, Txn,
    TxnOp, TxnOpResponse, WatchStream,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::rules::{Act, Holder, View, Write};
use super::sealed;
use super::settings::Settings;
use super::store::{FRESH, HOLDER, KEYS, Store, StoreName};

/// The thread. It ends, and gives its leases back, when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    wishes: Option<mpsc::UnboundedSender<Followed>>,
    thread: Option<JoinHandle<()>>,
}

/// Stores, and how to ask for each.
pub(super) type Followed = Vec<(Arc<Store>, Settings)>;

impl Running {
    pub(super) fn start(looks_only: bool) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (wishes, coming) = mpsc::unbounded_channel();
        let thread = std::thread::Builder::new()
            .name("widelane-etcd".into())
            .spawn(move || {
                runtime.block_on(serve(coming, looks_only));
                // A host name that is just looked up is not waited for.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            wishes: Some(wishes),
            thread: Some(thread),
        })
    }

    /// Asks for these stores from now on, and for no others.
    pub(super) fn follow(&self, stores: Followed) {
        if let Some(wishes) = &self.wishes {
            let _ = wishes.send(stores);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.wishes = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(mut wishes: mpsc::UnboundedReceiver<Followed>, looks_only: bool) {
    let mut following: HashMap<StoreName, watch::Sender<Settings>> = HashMap::new();
    let mut tasks = JoinSet::new();
    while let Some(stores) = wishes.recv().await {
        following.retain(|name, _| stores.iter().any(|(store, _)| store.name == *name));
        for (store, settings) in stores {
            if let Some(sender) = following.get(&store.name) {
                sender.send_replace(settings);
                continue;
            }
            let (sender, receiver) = watch::channel(settings);
            following.insert(store.name.clone(), sender);
            tasks.spawn(follow(store, receiver, looks_only));
        }
        while tasks.try_join_next().is_some() {}
    }
    drop(following);
    let all_end = async { while tasks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(GOODBYE, all_end).await;
}

/// Asks for one store until its sender is gone.
async fn follow(store: Arc<Store>, mut settings: watch::Receiver<Settings>, looks_only: bool) {
    let mut link = Link {
        name: store.name.clone(),
        looks_only,
        endpoint: 0,
        open: None,
        lease: None,
        kept: Instant::now(),
    };
    let pause = (store.name.rotation / 10).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    loop {
        let now = settings.borrow_and_update().clone();
        let turn = async {
            match link.turn(&store, &now).await {
                Ok(()) => store.succeeded(),
                Err(problem) => store.failed(problem),
            }
            store.pass();
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // At most so often, however fast others write.
                () = link.changed() => tokio::time::sleep(SHORTEST_PAUSE).await,
            }
        };
        tokio::select! {
            changed = settings.changed() => {
                if changed.is_err() {
                    break;
                }
                link.open = None;
            }
            () = turn => {}
        }
    }
    link.leave().await;
}

/// The connection to one endpoint at a time.
struct Link {
    name: StoreName,
    looks_only: bool,
    /// The one that has answered last, or is tried next.
    endpoint: usize,
    open: Option<Open>,
    /// The lease under which this instance may write, if it has one.
    lease: Option<i64>,
    /// When that was kept alive last.
    kept: Instant,
}

struct Open {
    client: Client,
    watch: Option<WatchStream>,
}

/// What went wrong at one endpoint.
enum Failure {
    /// No connection, no answer, no leader: another endpoint may do better.
    Here(String),
    /// All of etcd would say the same.
    Everywhere(String),
}

impl Link {
    /// Reads what etcd has, and does what is to be done.
    async fn turn(&mut self, store: &Store, settings: &Settings) -> Result<(), String> {
        let mut problems: Vec<String> = Vec::new();
        for _ in 0..self.name.etcd.endpoints.len() {
            match self.turn_here(store, settings).await {
                Ok(()) => return Ok(()),
                Err(Failure::Everywhere(problem)) => {
                    self.open = None;
                    return Err(problem);
                }
                Err(Failure::Here(problem)) => {
                    self.open = None;
                    self.endpoint = (self.endpoint + 1) % self.name.etcd.endpoints.len();
                    problems.push(problem);
                }
            }
            // With several endpoints, that takes longer than keys may wait to be renewed.
            store.pass();
        }
        problems.sort();
        Err(problems.join("; "))
    }

    async fn turn_here(&mut self, store: &Store, settings: &Settings) -> Result<(), Failure> {
        if self.open.is_none() {
            let client = self.connect(settings).await?;
            self.open = Some(Open {
                client,
                watch: None,
            });
        }
        for _ in 0..MOST_ACTS {
            self.keep_alive().await?;
            self.watch().await?;
            let asked = Instant::now();
            let view = self.read(settings).await?;
            let no_key = |error: crate::ticket_key::NoKey| Failure::Everywhere(error.to_string());
            match store.observe(view, asked).map_err(no_key)? {
                Act::Nothing => return Ok(()),
                _ if self.looks_only => return Ok(()),
                Act::Claim => self.claim().await?,
                Act::Resign => self.resign().await,
                Act::Write(write) => self.write(settings, &write).await?,
            }
        }
        Ok(())
    }

    async fn connect(&self, settings: &Settings) -> Result<Client, Failure> {
        let etcd = &self.name.etcd;
        let mut options = ConnectOptions::new()
            .with_connect_timeout(PATIENCE)
            .with_timeout(PATIENCE)
            .with_require_leader(true)
            .with_auto_token_refresh(true)
            .with_tcp_keepalive(Duration::from_secs(10));
        if let (Some(user), Some(password)) = (&etcd.user, &settings.password) {
            options = options.with_user(user, password.as_str());
        }
        let endpoint = &etcd.endpoints[self.endpoint];
        if endpoint.starts_with("https:") {
            let mut tls = TlsOptions::new();
            if let Some(ca) = &settings.ca {
                tls = tls.ca_certificate(Certificate::from_pem(ca));
            }
            if let Some((cert, key)) = &settings.identity {
                tls = tls.identity(Identity::from_pem(cert, key));
            }
            options = options.with_tls(tls);
        }
        self.in_time(Client::connect([endpoint], Some(options)))
            .await
    }

    async fn read(&mut self, settings: &Settings) -> Result<View, Failure> {
        let names = [KEYS, HOLDER, FRESH].map(|name| self.at(name));
        let mut client = self.client()?;
        // Only these: others may have any number of names below the prefix.
        let gets = names.each_ref().map(|name| TxnOp::get(name.as_str(), None));
        let read = self.in_time(client.txn(Txn::new().and_then(gets)));
        let answers = read.await?.op_responses();
        let [keys, holder, fresh] = [0, 1, 2].map(|place| match answers.get(place) {
            Some(TxnOpResponse::Get(answer)) => answer.kvs().first(),
            _ => None,
        });
        let holder = holder.map(etcd_client::KeyValue::lease);
        if holder.is_some() && holder != self.lease {
            // What is left of it expires.
            self.lease = None;
        }
        Ok(View {
            keys: keys.map(|entry| {
                let set = sealed::open(&settings.secret, names[0].as_bytes(), entry.value());
                (entry.mod_revision(), set)
            }),
            fresh: fresh.is_some(),
            holder: match (holder, self.lease) {
                (None, _) => Holder::None,
                (Some(of), Some(own)) if of == own => Holder::This(own),
                (Some(0), _) => Holder::WithoutLease,
                (Some(_), _) => Holder::Another,
            },
        })
    }

    /// Asks to be told of changes. Without, they are seen a little later.
    async fn watch(&mut self) -> Result<(), Failure> {
        let mut client = self.client()?;
        if self.open.as_ref().is_some_and(|open| open.watch.is_none()) {
            let mut watch = self.in_time(client.watch(self.at(KEYS), None)).await?;
            for name in [HOLDER, FRESH] {
                self.in_time(watch.watch(self.at(name), None)).await?;
            }
            if let Some(open) = &mut self.open {
                open.watch = Some(watch);
            }
        }
        Ok(())
    }

    /// Ends when something has changed.
    async fn changed(&mut self) {
        let Some(watch) = self.open.as_mut().and_then(|open| open.watch.as_mut()) else {
            return std::future::pending().await;
        };
        loop {
            match watch.message().await {
                Ok(Some(news)) if !news.canceled() && news.events().is_empty() => {}
                Ok(Some(news)) if !news.canceled() => return,
                // The next turn finds out why, and watches again.
                _ => {
                    if let Some(open) = &mut self.open {
                        open.watch = None;
                    }
                    return;
                }
            }
        }
    }

    async fn keep_alive(&mut self) -> Result<(), Failure> {
        let Some(lease) = self.lease else {
            return Ok(());
        };
        if self.kept.elapsed() < LEASE / 4 {
            return Ok(());
        }
        let mut client = self.client()?;
        let asked = Instant::now();
        let kept = client.lease_keep_alive(lease);
        match tokio::time::timeout(PATIENCE, kept).await {
            Ok(Ok(_)) => self.kept = asked,
            // It has ended: another instance may have one now.
            Ok(Err(etcd_client::Error::LeaseKeepAliveError(_))) => self.lease = None,
            Ok(Err(error)) => return Err(self.failure(&error)),
            Err(_) => return Err(late(self.endpoint())),
        }
        Ok(())
    }

    async fn claim(&mut self) -> Result<(), Failure> {
        // That of a claim without an answer holds nothing, as the read has shown.
        self.resign().await;
        let mut client = self.client()?;
        let asked = Instant::now();
        let seconds = i64::try_from(LEASE.as_secs()).unwrap_or(i64::MAX);
        let lease = self.in_time(client.lease_grant(seconds, None)).await?.id();
        let holder = self.at(HOLDER);
        let free = Compare::create_revision(holder.as_str(), CompareOp::Equal, 0);
        let put = PutOptions::new().with_lease(lease);
        let take = TxnOp::put(holder.as_str(), host(), Some(put));
        // Without an answer, it may have been taken: the next read tells.
        (self.lease, self.kept) = (Some(lease), asked);
        let taken = self.in_time(client.txn(Txn::new().when([free]).and_then([take])));
        let taken = taken.await;
        match &taken {
            Ok(answer) if answer.succeeded() => {}
            Err(Failure::Here(_)) => {}
            Ok(_) | Err(Failure::Everywhere(_)) => self.resign().await,
        }
        taken.map(|_| ())
    }

    /// Gives the lease back. Without an answer, etcd lets it expire.
    async fn resign(&mut self) {
        if let (Some(lease), Ok(mut client)) = (self.lease.take(), self.client()) {
            let _ = tokio::time::timeout(PATIENCE, client.lease_revoke(lease)).await;
        }
    }

    async fn write(&mut self, settings: &Settings, write: &Write) -> Result<(), Failure> {
        let Some(lease) = self.lease else {
            return Ok(());
        };
        let mut client = self.client()?;
        let [keys, holder, fresh] = [KEYS, HOLDER, FRESH].map(|name| self.at(name));
        let value = sealed::seal(&settings.secret, keys.as_bytes(), &write.set)
            .map_err(|error| Failure::Everywhere(error.to_string()))?;
        let granted = client.lease_grant(i64::from(write.fresh), None);
        let timer = self.in_time(granted).await?.id();
        let mut when = vec![
            Compare::lease(holder.as_str(), CompareOp::Equal, lease),
            Compare::mod_revision(keys.as_str(), CompareOp::Equal, write.revision),
        ];
        if write.turn {
            when.push(Compare::create_revision(
                fresh.as_str(),
                CompareOp::Equal,
                0,
            ));
        }
        let put = PutOptions::new().with_lease(timer);
        let then = [
            TxnOp::put(keys.as_str(), value, None),
            TxnOp::put(fresh.as_str(), "", Some(put)),
        ];
        let written = self.in_time(client.txn(Txn::new().when(when).and_then(then)));
        let written = written.await.map(|answer| answer.succeeded());
        match &written {
            Ok(true) => {
                let generation = write.set.generation;
                tracing::info!(
                    prefix = self.name.etcd.prefix,
                    generation,
                    "ticket keys written into etcd"
                );
            }
            // Without an answer, it may have been written, with this lease.
            Err(Failure::Here(_)) => {}
            Ok(false) | Err(Failure::Everywhere(_)) => {
                let _ = self.in_time(client.lease_revoke(timer)).await;
            }
        }
        written.map(|_| ())
    }

    /// Lets another instance write at once.
    async fn leave(mut self) {
        self.resign().await;
    }

    fn client(&self) -> Result<Client, Failure> {
        let open = self.open.as_ref().map(|open| open.client.clone());
        open.ok_or_else(|| Failure::Here("there is no connection to etcd".into()))
    }

    fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.name.etcd.prefix)
    }

    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, etcd_client::Error>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(PATIENCE, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.failure(&error)),
            Err(_) => Err(late(self.endpoint())),
        }
    }

    fn failure(&self, error: &etcd_client::Error) -> Failure {
        let etcd = &self.name.etcd;
        let user = etcd.user.as_deref();
        explain(self.endpoint(), user, &etcd.prefix, &chain(error))
    }

    fn endpoint(&self) -> &str {
        &self.name.etcd.endpoints[self.endpoint]
    }
}

fn late(endpoint: &str) -> Failure {
    Failure::Here(format!(
        "etcd at {endpoint} does not answer within {} seconds; see whether it runs and a majority of \
         its members reach each other (`etcdctl endpoint health --cluster`), and whether a firewall is \
         between",
        PATIENCE.as_secs()
    ))
}

/// An error with all that caused it.
fn chain(error: &etcd_client::Error) -> String {
    let mut text = error.to_string();
    let mut cause: Option<&dyn std::error::Error> = match error {
        etcd_client::Error::TransportError(error) => std::error::Error::source(error),
        etcd_client::Error::GRpcStatus(status) => std::error::Error::source(status),
        etcd_client::Error::IoError(error) => std::error::Error::source(error),
        _ => None,
    };
    while let Some(one) = cause {
        let said = one.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = one.source();
    }
    // What etcd says may be long, and is not trusted.
    let plain = |one: char| if one.is_control() { ' ' } else { one };
    text.chars().map(plain).take(LONGEST_TEXT).collect()
}

/// Names the most likely mistake behind an error, and what to do.
fn explain(endpoint: &str, user: Option<&str>, prefix: &str, text: &str) -> Failure {
    let has = |part: &str| text.contains(part);
    let everywhere = |problem: String| Failure::Everywhere(format!("etcd at {endpoint} {problem}"));
    let here = |problem: String| Failure::Here(format!("etcd at {endpoint} {problem}"));
    let who = user.unwrap_or("of the client certificate");
    if has("invalid user ID or password") {
        return everywhere(format!(
            "refuses the password of user `{who}`; correct `user` and `password_file` (etcdctl --user \
             {who} get {prefix}/ tries them)"
        ));
    }
    if has("user name is empty") || has("user name not found") {
        return everywhere(
            "wants a user; set `user` and `password_file`, or a client certificate (`cert`, `key`) whose \
             common name is a user of etcd"
                .into(),
        );
    }
    if has("authentication is not enabled") {
        return everywhere(
            "has no users; remove `user` and `password_file`, or call: etcdctl auth enable".into(),
        );
    }
    if has("permission denied") {
        return everywhere(format!(
            "gives user `{who}` too few rights; grant them: etcdctl role grant-permission ROLE readwrite \
             --prefix=true {prefix}/"
        ));
    }
    if has("UnknownIssuer") {
        return here(
            "has a certificate of an authority that is not in the file `ca`; put the authority that has \
             signed etcd's certificate there"
                .into(),
        );
    }
    if has("NotValidForName") {
        return here(
            "has a certificate for other names; write the endpoint as its certificate names it"
                .into(),
        );
    }
    if has("TimeoutExpired") {
        return late(endpoint);
    }
    if has("Expired") || has("NotValidYet") || has("not valid") {
        return here(format!(
            "has a certificate that is not valid at this time: {text}; renew it, or correct the clock of \
             this machine"
        ));
    }
    if has("CertificateRequired") || has("BadCertificate") || has("received fatal alert") {
        return here(format!(
            "refuses this client's certificate: {text}; set `cert` and `key` to a certificate of the \
             authority that etcd trusts (its --trusted-ca-file)"
        ));
    }
    // A server without TLS answers in plain, or closes as etcd does.
    if has("InvalidContentType") || has("InvalidMessage") || has("tls handshake eof") {
        return here("does not speak TLS; write http:// in `endpoints`".into());
    }
    // It closes without a word, and the moment decides which error that is.
    let is_closed = ["BrokenPipe", "ConnectionReset", "UnexpectedEof"]
        .into_iter()
        .any(has);
    if endpoint.starts_with("http://") && is_closed {
        return here(
            "closes the connection; if it speaks TLS, write https:// in `endpoints`, and name the authority of \
             its certificate in `ca`"
                .into(),
        );
    }
    if has("refused") {
        return here(
            "refuses the connection; start etcd, or correct `endpoints` (its --listen-client-urls)"
                .into(),
        );
    }
    here(format!(
        "fails: {text}; see whether it runs and has a leader: etcdctl endpoint status --cluster"
    ))
}

/// The name of this machine, for people who look into etcd.
fn host() -> String {
    let name = rustix::system::uname();
    format!(
        "{} {}",
        name.nodename().to_string_lossy(),
        std::process::id()
    )
}

/// For each request.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long after its last sign of life another instance may write.
const LEASE: Duration = Duration::from_secs(10);
/// How long a stop waits until leases are given back.
const GOODBYE: Duration = Duration::from_millis(2500);
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// What follows from one look: become the holder, write the first set, see it.
const MOST_ACTS: usize = 4;
const LONGEST_TEXT: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of etcd 3.4, tonic and rustls. `tests/etcd.rs` has a real etcd say the likeliest.
    #[test]
    fn each_likely_mistake_has_a_sentence_with_its_remedy() {
        for (text, problem, remedy) in [
            (
                "etcdserver: authentication failed, invalid user ID or password",
                "refuses the password of user `app`",
                "correct `user` and `password_file`",
            ),
            (
                "etcdserver: user name is empty",
                "wants a user",
                "set `user`",
            ),
            (
                "etcdserver: authentication is not enabled",
                "has no users",
                "remove `user`",
            ),
            (
                "etcdserver: permission denied",
                "too few rights",
                "etcdctl role grant-permission ROLE readwrite --prefix=true /p/",
            ),
            (
                "transport error: invalid peer certificate: UnknownIssuer",
                "not in the file `ca`",
                "put the authority",
            ),
            (
                "invalid peer certificate: certificate not valid for name: NotValidForName",
                "for other names",
                "write the endpoint",
            ),
            (
                "grpc request error: source: tonic::transport::Error(Transport, TimeoutExpired(()))",
                "does not answer within",
                "see whether it runs",
            ),
            (
                "invalid peer certificate: certificate Expired",
                "not valid at this time",
                "correct the clock",
            ),
            (
                "received fatal alert: CertificateRequired",
                "refuses this client's certificate",
                "set `cert` and `key`",
            ),
            (
                "received corrupt message of type InvalidContentType",
                "does not speak TLS",
                "http://",
            ),
            ("tls handshake eof", "does not speak TLS", "write http://"),
            (
                "Io, Custom { kind: BrokenPipe, error: \"stream closed because of a broken pipe\" }",
                "if it speaks TLS",
                "write https://",
            ),
            (
                "Connection refused (os error 111)",
                "refuses the connection",
                "start etcd",
            ),
            (
                "something else",
                "fails: something else",
                "etcdctl endpoint status",
            ),
        ] {
            let (Failure::Here(said) | Failure::Everywhere(said)) =
                explain("http://e:2379", Some("app"), "/p", text);
            assert!(said.contains(problem) && said.contains(remedy), "{said}");
        }
    }
}
