//! The agent's end: accepting connections within limits, judging them, and handing on the paired.
//!
//! A stranger gets a thread for some seconds at most, only so many of them at a time, and fewer from
//! one address; whoever comes beyond that takes the place of the one who has been there longest, so that silence keeps
//! nobody out. Left out: what a session does ([`Service`] is given it), and where the list of peers is.

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

use super::deadline::DeadlineStream;
use super::greeting::{self, Answer, Greeting, MAGIC, MessageError, Refusal, VERSION, Wish};
use super::identity::{Fingerprint, Identity};
use super::peers::{self, Kind, Peer, Peers, PeersError};
use super::stream::SecureStream;
use super::token::{Proof, Token};
use super::verifier;
use super::window::Window;
use crate::clock;

/// How often the accept loop looks whether it should stop.
const LOOK_EVERY_MS: i32 = 100;
/// How long to wait when the kernel has no descriptor for a connection.
const PAUSE_NS: u64 = 5_000_000;
/// What a handshake and a session together take of the stack, with room.
const STACK_BYTES: usize = 1 << 20;

/// What one listener takes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions at a time.
    pub sessions: usize,
    /// Sessions of one peer at a time.
    pub sessions_per_peer: usize,
    /// Connections at a time that are not sessions yet.
    pub strangers: usize,
    /// Of them, from one address.
    pub strangers_per_address: usize,
    /// How long a connection may take to become a session.
    pub handshake: Span,
    /// How long a read or a write of a session may wait unless the service sets another time.
    pub idle: Span,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 16,
            sessions_per_peer: 4,
            strangers: 32,
            strangers_per_address: 8,
            handshake: Span::from_secs(5),
            idle: super::connect::IDLE,
        }
    }
}

impl Limits {
    /// Those of so many sessions at a time.
    pub fn of_clients(sessions: usize) -> Self {
        let usual = Self::default();
        Self { sessions, sessions_per_peer: usual.sessions_per_peer.min(sessions), ..usual }
    }
}

/// What happened to a connection, for whoever watches the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
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
        /// What it is known by.
        fingerprint: Fingerprint,
    },
    /// A greeting was refused, with a reason that the other side was told.
    Refused {
        /// From where.
        from: SocketAddr,
        /// Why.
        refusal: Refusal,
    },
    /// A connection failed before it was a session.
    Failed {
        /// From where.
        from: SocketAddr,
        /// Why.
        reason: String,
    },
    /// Too many connections at once: this one was closed unheard.
    TurnedAway {
        /// From where.
        from: SocketAddr,
    },
}

/// What is done with a session.
pub trait Service: Send + Sync {
    /// Serves one session, in a thread of its own, until it is over.
    fn serve(&self, stream: SecureStream, peer: &str);

    /// Is told what happens.
    fn note(&self, event: &Event) {
        let _ = event;
    }
}

/// A socket that accepts, and what is known about whom it has accepted.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    fingerprint: Fingerprint,
    configuration: Arc<ServerConfig>,
    peers: Peers,
    limits: Limits,
    window: Mutex<Option<Window>>,
    table: Mutex<BTreeMap<u64, Entry>>,
    next: AtomicU64,
    stopping: AtomicBool,
}

/// A connection that has a thread.
#[derive(Debug)]
struct Entry {
    socket: TcpStream,
    address: IpAddr,
    /// Whose session it is, once it is one.
    session: Option<Fingerprint>,
    /// Whether its place was given to somebody else, and its thread is about to end.
    is_ended: bool,
}

impl Entry {
    const fn is_stranger(&self) -> bool {
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

impl Listener {
    /// Listens on an address.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn bind(
        address: SocketAddr,
        identity: &Identity,
        peers: Peers,
        limits: Limits,
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
    pub fn open_pairing(&self, token: Token) {
        *held(&self.window) = Some(Window::open(token, clock::now()));
    }

    /// Whether a pairing would be taken.
    pub fn is_pairing(&self) -> bool {
        held(&self.window).as_ref().is_some_and(|window| window.is_open(clock::now()))
    }

    /// Connections that have a thread now.
    pub fn connections(&self) -> usize {
        held(&self.table).len()
    }

    /// Ends [`Listener::run`] soon, and every connection at once.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        for entry in held(&self.table).values() {
            entry.socket.shutdown(Shutdown::Both).ok();
        }
    }

    /// Accepts until it is stopped; every thread it started has ended then.
    ///
    /// # Errors
    /// When the socket itself fails.
    pub fn run(&self, service: &dyn Service) -> io::Result<()> {
        thread::scope(|scope| {
            let accepted = self.accept(
                |id, socket, from| {
                    let serve = move || {
                        let _entry = EntryGuard { listener: self, id };
                        let serve = || self.handle(id, socket, from, service);
                        // A session that ends in a bug of plumb's ends alone.
                        if catch_unwind(AssertUnwindSafe(serve)).is_err() {
                            let reason = "plumb has a bug, which ended this session".to_owned();
                            service.note(&Event::Failed { from, reason });
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
        service: &dyn Service,
    ) -> io::Result<()> {
        while !self.stopping.load(Ordering::Relaxed) {
            match plumb_sys::fd::poll_readable(self.socket.as_fd(), LOOK_EVERY_MS) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            // An error of accept(2) is the connection's, or passes: too many open files, for one.
            let Ok((socket, from)) = self.socket.accept() else {
                clock::sleep_until(clock::steady_ns() + PAUSE_NS);
                continue;
            };
            let entered = self.enter(&socket, from.ip());
            let started = entered.is_some_and(|id| {
                let started = start(id, socket, from);
                if !started {
                    held(&self.table).remove(&id);
                }
                started
            });
            if !started {
                service.note(&Event::TurnedAway { from });
            }
        }
        Ok(())
    }

    /// A place for a stranger, if need be that of another.
    fn enter(&self, socket: &TcpStream, address: IpAddr) -> Option<u64> {
        let mut table = held(&self.table);
        // Those who had to go take a moment for it, and have threads meanwhile.
        let ending = table.values().filter(|entry| entry.is_ended).count();
        if ending > self.limits.strangers {
            return None;
        }
        make_room(&mut table, self.limits, address);
        // The accepted socket waits, whatever the listening one does.
        socket.set_nonblocking(false).ok()?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let socket = socket.try_clone().ok()?;
        table.insert(id, Entry { socket, address, session: None, is_ended: false });
        Some(id)
    }

    fn handle(&self, id: u64, socket: TcpStream, from: SocketAddr, service: &dyn Service) {
        let failed = |reason: String| service.note(&Event::Failed { from, reason });
        let deadline = clock::now() + self.limits.handshake;
        let mut stream = match self.handshake(socket, deadline) {
            Ok(stream) => stream,
            Err(error) => return failed(error.to_string()),
        };
        let judged = greeting::read::<Greeting>(&mut stream);
        let judged = match judged {
            Ok(greeting) => self.judge(id, &stream, greeting, &failed),
            Err(MessageError::Connection(error)) => return failed(error.to_string()),
            Err(MessageError::TooLong(_) | MessageError::Malformed) => Err(Refusal::Malformed),
        };
        match judged {
            Ok(Verdict::Session { peer }) => {
                if greeting::write(&mut stream, &Answer::Welcome).is_err() {
                    return;
                }
                stream.set_times(Instant::NEVER, self.limits.idle);
                service.note(&Event::Began { from, peer: peer.clone() });
                service.serve(stream, &peer);
                service.note(&Event::Ended { from, peer });
            }
            Ok(Verdict::Paired { peer, fingerprint, proof }) => {
                greeting::write(&mut stream, &Answer::Paired { proof }).ok();
                service.note(&Event::Paired { from, peer, fingerprint });
                stream.close();
            }
            Err(refusal) => {
                greeting::write(&mut stream, &Answer::Refused(refusal.clone())).ok();
                service.note(&Event::Refused { from, refusal });
                stream.close();
            }
        }
    }

    fn handshake(&self, socket: TcpStream, deadline: Instant) -> io::Result<SecureStream> {
        socket.set_nodelay(true)?;
        let connection =
            ServerConnection::new(Arc::clone(&self.configuration)).map_err(io::Error::other)?;
        let socket = DeadlineStream::new(socket, deadline, self.limits.handshake);
        SecureStream::agent(connection, socket)
    }

    /// What a greeting comes to; `failed` is told of trouble that is this host's own.
    fn judge(
        &self,
        id: u64,
        stream: &SecureStream,
        said: Greeting,
        failed: &dyn Fn(String),
    ) -> Result<Verdict, Refusal> {
        let trouble = |error: PeersError| {
            failed(error.to_string());
            Refusal::Trouble
        };
        if said.magic != MAGIC {
            return Err(Refusal::Malformed);
        }
        if said.version != VERSION {
            return Err(Refusal::Version { agent: VERSION });
        }
        let fingerprint = stream.peer().map_err(|_| Refusal::Malformed)?;
        match said.wish {
            Wish::Session => {
                let known = self.peers.client(fingerprint).map_err(trouble)?;
                let peer = known.ok_or(Refusal::NotPaired { client: fingerprint })?;
                self.admit(id, fingerprint)?;
                Ok(Verdict::Session { peer })
            }
            Wish::Pair { name, proof } => {
                let binding = stream.binding(self.fingerprint).map_err(|_| Refusal::Malformed)?;
                // Held over the writing of the list: a token must not be used twice at once.
                let mut window = held(&self.window);
                let window = window.as_mut().ok_or(Refusal::NotPairing)?;
                let unused = window.clone();
                let proof = window.attempt(clock::now(), &proof, &binding)?;
                let peer = Peer { kind: Kind::Client, name: peers::plain_name(&name), fingerprint };
                if let Err(error) = self.peers.add(&peer) {
                    // Nobody was paired: the token is as good as before, once there is room.
                    *window = unused;
                    return Err(trouble(error));
                }
                Ok(Verdict::Paired { peer: peer.name, fingerprint, proof })
            }
        }
    }

    /// Makes a stranger a session, where the limits allow one more.
    fn admit(&self, id: u64, fingerprint: Fingerprint) -> Result<(), Refusal> {
        let mut table = held(&self.table);
        let sessions = table.values().filter_map(|entry| entry.session);
        let total = sessions.clone().count();
        let of_peer = sessions.filter(|session| *session == fingerprint).count();
        let Limits { sessions, sessions_per_peer, .. } = self.limits;
        if of_peer >= sessions_per_peer {
            return Err(Refusal::BusyWithPeer { limit: narrow(sessions_per_peer) });
        }
        if total >= sessions {
            return Err(Refusal::Busy { limit: narrow(sessions) });
        }
        match table.get_mut(&id) {
            Some(entry) if !entry.is_ended => entry.session = Some(fingerprint),
            // Its place was given away while it was judged; it may come again.
            _ => return Err(Refusal::Crowded),
        }
        Ok(())
    }
}

/// Ends the stranger who has been there longest, where there are as many as may be: of the same address, or else of
/// the address with the most.
fn make_room(table: &mut BTreeMap<u64, Entry>, limits: Limits, address: IpAddr) {
    let mut by_address: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for entry in table.values().filter(|entry| entry.is_stranger()) {
        *by_address.entry(entry.address).or_default() += 1;
    }
    let here = by_address.get(&address).copied().unwrap_or(0);
    let crowded = if here >= limits.strangers_per_address {
        Some(address)
    } else if by_address.values().sum::<usize>() >= limits.strangers {
        by_address.into_iter().max_by_key(|(_, count)| *count).map(|(address, _)| address)
    } else {
        None
    };
    // They are in the order in which they came.
    let oldest =
        table.values_mut().find(|entry| entry.is_stranger() && Some(entry.address) == crowded);
    if let Some(oldest) = oldest {
        oldest.is_ended = true;
        oldest.socket.shutdown(Shutdown::Both).ok();
    }
}

/// What a greeting comes to.
enum Verdict {
    Session { peer: String },
    Paired { peer: String, fingerprint: Fingerprint, proof: Proof },
}

/// Gives the place free, even after a panic.
struct EntryGuard<'a> {
    listener: &'a Listener,
    id: u64,
}

impl Drop for EntryGuard<'_> {
    fn drop(&mut self) {
        held(&self.listener.table).remove(&self.id);
    }
}

fn narrow(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}

/// The table and the window are changed in single steps, so they are whole even after a panic.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
