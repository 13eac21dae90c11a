//! The agent's end: accepting connections within limits, judging them, and handing on the paired.
//!
//! An unauthenticated client gets a thread for some seconds at most, only so many of them at a time, and fewer from
//! one address; whoever comes beyond that takes the place of the one who has been there longest, so that silence keeps
//! nobody out. Left out: what a session does ([`SessionService`] is given it), and where the list of peers is.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use plumb_base::time::{Instant, Span};
use rustls::{ServerConfig, ServerConnection};

use super::admission::{
    self, AdmissionIntent, AdmissionRefusal, AdmissionReply, AdmissionRequest, GreetingError,
    MAGIC, PairingProof, PairingToken, PairingWindow, VERSION,
};
use super::identity::{
    self, Fingerprint, HostIdentity, PairedPeer, PairedRole, PeerStore, PeerStoreError,
};
use super::stream::{DeadlineStream, SecureStream};
use super::verifier;

/// How often the accept loop looks whether it should stop.
const STOP_POLL_MS: i32 = 100;
/// How long to wait when the kernel has no descriptor for a connection.
const PAUSE_NS: u64 = 5_000_000;
/// What a handshake and a session together take of the stack, with room.
const STACK_BYTES: usize = 1 << 20;

/// What one listener takes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Sessions at a time.
    pub sessions: usize,
    /// Sessions of one peer at a time.
    pub sessions_per_peer: usize,
    /// Connections at a time that are not sessions yet.
    pub pending: usize,
    /// Of them, from one address.
    pub pending_per_address: usize,
    /// How long a connection may take to become a session.
    pub handshake: Span,
    /// How long a read or a write of a session may wait unless the service sets another time.
    pub idle: Span,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self {
            sessions: 16,
            sessions_per_peer: 4,
            pending: 32,
            pending_per_address: 8,
            handshake: Span::from_secs(5),
            idle: super::connect::IO_TIMEOUT,
        }
    }
}

impl ListenerLimits {
    /// Those of so many sessions at a time.
    pub fn of_clients(sessions: usize) -> Self {
        let usual = Self::default();
        Self { sessions, sessions_per_peer: usual.sessions_per_peer.min(sessions), ..usual }
    }
}

/// What happened to a connection, for whoever watches the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerEvent {
    /// A session began.
    Began {
        /// From where.
        from: SocketAddr,
        /// Whose.
        peer: String,
    },
    /// A session ended.
    Ended {
        /// From where.
        from: SocketAddr,
        /// Whose.
        peer: String,
    },
    /// Somebody was paired.
    Paired {
        /// From where.
        from: SocketAddr,
        /// What it calls itself.
        peer: String,
        /// Its fingerprint.
        fingerprint: Fingerprint,
    },
    /// A greeting was refused, with a reason that the other side was told.
    Refused {
        /// From where.
        from: SocketAddr,
        /// Why.
        refusal: AdmissionRefusal,
    },
    /// A connection failed before it was a session.
    Failed {
        /// From where.
        from: SocketAddr,
        /// Why.
        reason: String,
    },
    /// Too many connections at once: this one was closed unheard.
    Rejected {
        /// From where.
        from: SocketAddr,
    },
}

/// What is done with a session.
pub trait SessionService: Send + Sync {
    /// Serves one session, in a thread of its own, until it is over.
    fn serve(&self, stream: SecureStream, peer: &str);

    /// Is told what happens.
    fn on_event(&self, event: &ListenerEvent) {
        let _ = event;
    }
}

/// A socket that accepts, and what is known about whom it has accepted.
#[derive(Debug)]
pub struct SecureListener {
    socket: TcpListener,
    fingerprint: Fingerprint,
    configuration: Arc<ServerConfig>,
    peers: PeerStore,
    limits: ListenerLimits,
    window: Mutex<Option<PairingWindow>>,
    table: Mutex<BTreeMap<u64, ConnectionEntry>>,
    next: AtomicU64,
    stopping: AtomicBool,
}

/// A connection that has a thread.
#[derive(Debug)]
struct ConnectionEntry {
    socket: TcpStream,
    address: IpAddr,
    /// Whose session it is, once it is one.
    session: Option<Fingerprint>,
    /// Whether its place was given to somebody else, and its thread is about to end.
    is_ended: bool,
}

impl ConnectionEntry {
    const fn is_pending(&self) -> bool {
        self.session.is_none() && !self.is_ended
    }
}

/// The listener could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address.
    #[error("cannot listen on {address} ({error}); choose an address of this host and a free port")]
    Address {
        /// Which.
        address: SocketAddr,
        /// The system's word.
        error: io::Error,
    },
    /// The identity.
    #[error("this host's key cannot be used ({0}); remove it and pair again")]
    Identity(#[from] rustls::Error),
}

impl SecureListener {
    /// Listens on an address.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn bind(
        address: SocketAddr,
        identity: &HostIdentity,
        peers: PeerStore,
        limits: ListenerLimits,
    ) -> Result<Self, ListenError> {
        let fault = |error| ListenError::Address { address, error };
        let socket = TcpListener::bind(address).map_err(fault)?;
        socket.set_nonblocking(true).map_err(fault)?;
        Ok(Self {
            socket,
            fingerprint: identity.fingerprint(),
            configuration: verifier::agent_configuration(identity)?,
            peers,
            limits,
            window: Mutex::new(None),
            table: Mutex::new(BTreeMap::new()),
            next: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Takes a pairing with this token from now on, in the place of any before.
    pub fn open_pairing(&self, token: PairingToken) {
        *lock(&self.window) = Some(PairingWindow::open(token, plumb_clock::now()));
    }

    /// Whether a pairing would be taken.
    pub fn is_pairing(&self) -> bool {
        lock(&self.window).as_ref().is_some_and(|window| window.is_open(plumb_clock::now()))
    }

    /// Connections that have a thread now.
    pub fn connections(&self) -> usize {
        lock(&self.table).len()
    }

    /// Ends [`SecureListener::run`] soon, and every connection at once.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        for entry in lock(&self.table).values() {
            entry.socket.shutdown(Shutdown::Both).ok();
        }
    }

    /// Accepts until it is stopped; every thread it started has ended then.
    ///
    /// # Errors
    /// When the socket itself fails.
    pub fn run(&self, service: &dyn SessionService) -> io::Result<()> {
        thread::scope(|scope| {
            let accepted = self.accept(
                |id, socket, from| {
                    let serve = move || {
                        let _entry = EntryGuard { listener: self, id };
                        let serve = || self.handle(id, socket, from, service);
                        // A session that ends in a bug of plumb's ends alone.
                        if catch_unwind(AssertUnwindSafe(serve)).is_err() {
                            let reason = "plumb has a bug, which ended this session".to_owned();
                            service.on_event(&ListenerEvent::Failed { from, reason });
                        }
                    };
                    thread::Builder::new()
                        .stack_size(STACK_BYTES)
                        .spawn_scoped(scope, serve)
                        .is_ok()
                },
                service,
            );
            self.stop();
            accepted
        })
    }

    fn accept(
        &self,
        start: impl Fn(u64, TcpStream, SocketAddr) -> bool,
        service: &dyn SessionService,
    ) -> io::Result<()> {
        while !self.stopping.load(Ordering::Relaxed) {
            match plumb_sys::fd::poll_readable(self.socket.as_fd(), STOP_POLL_MS) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            // An error of accept(2) is the connection's, or passes: too many open files, for one.
            let Ok((socket, from)) = self.socket.accept() else {
                plumb_clock::sleep_until(plumb_clock::monotonic_ns() + PAUSE_NS);
                continue;
            };
            let entered = self.register(&socket, from.ip());
            let started = entered.is_some_and(|id| {
                let started = start(id, socket, from);
                if !started {
                    lock(&self.table).remove(&id);
                }
                started
            });
            if !started {
                service.on_event(&ListenerEvent::Rejected { from });
            }
        }
        Ok(())
    }

    /// A slot for an unauthenticated client, if need be by evicting another.
    fn register(&self, socket: &TcpStream, address: IpAddr) -> Option<u64> {
        let mut table = lock(&self.table);
        // Those who had to go take a moment for it, and have threads meanwhile.
        let ending = table.values().filter(|entry| entry.is_ended).count();
        if ending > self.limits.pending {
            return None;
        }
        evict_oldest_pending(&mut table, self.limits, address);
        // The accepted socket waits, whatever the listening one does.
        socket.set_nonblocking(false).ok()?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let socket = socket.try_clone().ok()?;
        table.insert(id, ConnectionEntry { socket, address, session: None, is_ended: false });
        Some(id)
    }

    fn handle(&self, id: u64, socket: TcpStream, from: SocketAddr, service: &dyn SessionService) {
        let failed = |reason: String| service.on_event(&ListenerEvent::Failed { from, reason });
        let deadline = plumb_clock::now() + self.limits.handshake;
        let mut stream = match self.handshake(socket, deadline) {
            Ok(stream) => stream,
            Err(error) => return failed(error.to_string()),
        };
        let judged = admission::read::<AdmissionRequest>(&mut stream);
        let judged = match judged {
            Ok(greeting) => self.evaluate(id, &stream, greeting, &failed),
            Err(GreetingError::Connection(error)) => return failed(error.to_string()),
            Err(GreetingError::TooLong(_) | GreetingError::Malformed) => {
                Err(AdmissionRefusal::Malformed)
            }
        };
        match judged {
            Ok(AdmissionVerdict::Session { peer }) => {
                if admission::write(&mut stream, &AdmissionReply::Welcome).is_err() {
                    return;
                }
                stream.set_times(Instant::NEVER, self.limits.idle);
                service.on_event(&ListenerEvent::Began { from, peer: peer.clone() });
                service.serve(stream, &peer);
                service.on_event(&ListenerEvent::Ended { from, peer });
            }
            Ok(AdmissionVerdict::Paired { peer, fingerprint, proof }) => {
                admission::write(&mut stream, &AdmissionReply::Paired { proof }).ok();
                service.on_event(&ListenerEvent::Paired { from, peer, fingerprint });
                stream.close();
            }
            Err(refusal) => {
                admission::write(&mut stream, &AdmissionReply::Refused(refusal.clone())).ok();
                service.on_event(&ListenerEvent::Refused { from, refusal });
                stream.close();
            }
        }
    }

    fn handshake(&self, socket: TcpStream, deadline: Instant) -> io::Result<SecureStream> {
        socket.set_nodelay(true)?;
        let connection =
            ServerConnection::new(Arc::clone(&self.configuration)).map_err(io::Error::other)?;
        let socket = DeadlineStream::new(socket, deadline, self.limits.handshake);
        SecureStream::handshake(connection.into(), socket)
    }

    /// What a greeting comes to; `failed` is told about failures of this host's own.
    fn evaluate(
        &self,
        id: u64,
        stream: &SecureStream,
        said: AdmissionRequest,
        failed: &dyn Fn(String),
    ) -> Result<AdmissionVerdict, AdmissionRefusal> {
        let failure = |error: PeerStoreError| {
            failed(error.to_string());
            AdmissionRefusal::AgentFailure
        };
        if said.magic != MAGIC {
            return Err(AdmissionRefusal::Malformed);
        }
        if said.version != VERSION {
            return Err(AdmissionRefusal::Version { agent: VERSION });
        }
        let fingerprint = stream.peer().map_err(|_| AdmissionRefusal::Malformed)?;
        match said.wish {
            AdmissionIntent::Session => {
                let known = self.peers.client(fingerprint).map_err(failure)?;
                let peer = known.ok_or(AdmissionRefusal::NotPaired { client: fingerprint })?;
                self.admit(id, fingerprint)?;
                Ok(AdmissionVerdict::Session { peer })
            }
            AdmissionIntent::Pair { name, proof } => {
                let binding =
                    stream.binding(self.fingerprint).map_err(|_| AdmissionRefusal::Malformed)?;
                // Held over the writing of the list: a token must not be used twice at once.
                let mut window = lock(&self.window);
                let window = window.as_mut().ok_or(AdmissionRefusal::NotPairing)?;
                let unused = window.clone();
                let proof = window.attempt(plumb_clock::now(), &proof, &binding)?;
                let peer = PairedPeer {
                    kind: PairedRole::Client,
                    name: identity::sanitize_name(&name),
                    fingerprint,
                };
                if let Err(error) = self.peers.add(&peer) {
                    // Nobody was paired: the token is as good as before, once there is room.
                    *window = unused;
                    return Err(failure(error));
                }
                Ok(AdmissionVerdict::Paired { peer: peer.name, fingerprint, proof })
            }
        }
    }

    /// Admits a client, where the limits allow one more.
    fn admit(&self, id: u64, fingerprint: Fingerprint) -> Result<(), AdmissionRefusal> {
        let mut table = lock(&self.table);
        let sessions = table.values().filter_map(|entry| entry.session);
        let total = sessions.clone().count();
        let of_peer = sessions.filter(|session| *session == fingerprint).count();
        let ListenerLimits { sessions, sessions_per_peer, .. } = self.limits;
        if of_peer >= sessions_per_peer {
            return Err(AdmissionRefusal::BusyWithPeer { limit: saturate_u32(sessions_per_peer) });
        }
        if total >= sessions {
            return Err(AdmissionRefusal::Busy { limit: saturate_u32(sessions) });
        }
        match table.get_mut(&id) {
            Some(entry) if !entry.is_ended => entry.session = Some(fingerprint),
            // Its place was given away while it was judged; it may come again.
            _ => return Err(AdmissionRefusal::Crowded),
        }
        Ok(())
    }
}

/// Evicts the oldest unauthenticated client, where there are as many as may be: of the same address, or else of
/// the address with the most.
fn evict_oldest_pending(
    table: &mut BTreeMap<u64, ConnectionEntry>,
    limits: ListenerLimits,
    address: IpAddr,
) {
    let mut by_address: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for entry in table.values().filter(|entry| entry.is_pending()) {
        *by_address.entry(entry.address).or_default() += 1;
    }
    let here = by_address.get(&address).copied().unwrap_or(0);
    let crowded = if here >= limits.pending_per_address {
        Some(address)
    } else if by_address.values().sum::<usize>() >= limits.pending {
        by_address.into_iter().max_by_key(|(_, count)| *count).map(|(address, _)| address)
    } else {
        None
    };
    // They are in the order in which they came.
    let oldest =
        table.values_mut().find(|entry| entry.is_pending() && Some(entry.address) == crowded);
    if let Some(oldest) = oldest {
        oldest.is_ended = true;
        oldest.socket.shutdown(Shutdown::Both).ok();
    }
}

/// What a greeting comes to.
enum AdmissionVerdict {
    Session { peer: String },
    Paired { peer: String, fingerprint: Fingerprint, proof: PairingProof },
}

/// Gives the place free, even after a panic.
struct EntryGuard<'a> {
    listener: &'a SecureListener,
    id: u64,
}

impl Drop for EntryGuard<'_> {
    fn drop(&mut self) {
        lock(&self.listener.table).remove(&self.id);
    }
}

fn saturate_u32(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}

/// The table and the window are changed in single steps, so they are whole even after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
