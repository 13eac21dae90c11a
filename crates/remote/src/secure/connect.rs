//! The client's end: connecting to an agent that is known, and pairing with one that is not yet.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use plumb_base::time::Span;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::admission::{
    self, AdmissionIntent, AdmissionRefusal, AdmissionReply, AdmissionRequest, GreetingError,
    MAGIC, PairingSide, PairingToken, VERSION,
};
use super::identity::{
    self, Fingerprint, HostIdentity, NAME, PairedPeer, PairedRole, PeerStore, PeerStoreError,
};
use super::stream::{DeadlineStream, SecureStream};
use super::verifier;

/// How long connecting, the handshake and the greeting may take together.
pub const CONNECT_TIMEOUT: Span = Span::from_secs(10);
/// Tries of a handshake that the agent ends early, as it does when many connect at once, and the time after the first;
/// twice as long after each further one.
const TRIES: u32 = 5;
const RETRY_DELAY: Span = Span::from_ms(50);
/// How long a read or a write of a session may wait unless somebody sets another time.
pub const IO_TIMEOUT: Span = Span::from_secs(30);

/// An agent to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAddress {
    /// What the user calls it, with its port: under this name it is known once it is paired.
    pub name: String,
    /// Where it is, in the order to try.
    pub addresses: Vec<SocketAddr>,
}

impl AgentAddress {
    fn handshake_error(&self, error: io::Error) -> SecureConnectError {
        SecureConnectError::Handshake { name: self.name.clone(), error }
    }

    fn greeting_error(&self, error: GreetingError) -> SecureConnectError {
        SecureConnectError::Greeting { name: self.name.clone(), error }
    }
}

/// No connection came about.
#[derive(Debug, thiserror::Error)]
pub enum SecureConnectError {
    /// Never paired with.
    #[error(
        "{name} has not been paired with this host; run 'plumb agent --listen --pair' there, then \
         'plumb net HOST --pair TOKEN' here"
    )]
    NotPaired {
        /// The agent.
        name: String,
    },
    /// Nobody answers at any address.
    #[error("{name} does not answer at {address} ({error}); {fix}")]
    Unreachable {
        /// The agent.
        name: String,
        /// The last address tried.
        address: String,
        /// The system's word.
        error: io::Error,
        /// What to do.
        fix: &'static str,
    },
    /// Somebody answers, but no agent.
    #[error(
        "{name} answers, but not as plumb's agent ({error}); is 'plumb agent --listen' on that port?"
    )]
    Handshake {
        /// The agent.
        name: String,
        /// Why.
        error: io::Error,
    },
    /// Another key than when it was paired.
    #[error(
        "{name} has another key ({found}) than when it was paired ({expected}): the connection may \
         be intercepted; if the key was renewed, pair again"
    )]
    KeyChanged {
        /// The agent.
        name: String,
        /// When it was paired.
        expected: Fingerprint,
        /// Now.
        found: Fingerprint,
    },
    /// The agent refuses, and says why.
    #[error("{0}")]
    Refused(AdmissionRefusal),
    /// The agent does not know the token that it was given.
    #[error(
        "{name} took the token but does not know it itself: the connection is intercepted; do not use \
         this network, and pair over another"
    )]
    Impostor {
        /// The agent.
        name: String,
    },
    /// The greeting failed.
    #[error("greeting {name} failed: {error}")]
    Greeting {
        /// The agent.
        name: String,
        /// Why.
        error: GreetingError,
    },
    /// The list of peers.
    #[error(transparent)]
    Peers(#[from] PeerStoreError),
    /// This host's own identity.
    #[error("this host's key cannot be used ({0}); remove it and pair again")]
    Identity(#[from] rustls::Error),
}

/// A session's connection to an agent that has been paired with.
///
/// # Errors
/// [`SecureConnectError`]. Nothing is sent to an agent whose certificate is not the known one.
pub fn connect(
    identity: &HostIdentity,
    peers: &PeerStore,
    remote: &AgentAddress,
) -> Result<SecureStream, SecureConnectError> {
    let name = || remote.name.clone();
    let expected =
        peers.agent(&remote.name)?.ok_or(SecureConnectError::NotPaired { name: name() })?;
    let once = || {
        let mut stream = handshake(identity, remote)?;
        let found = stream.peer().map_err(|error| remote.handshake_error(error))?;
        if found != expected {
            return Err(SecureConnectError::KeyChanged { name: name(), expected, found });
        }
        let answer = request_admission(&mut stream, remote, AdmissionIntent::Session)?;
        Ok((stream, answer))
    };
    match with_retries(once)? {
        (mut stream, AdmissionReply::Welcome) => {
            stream.set_times(plumb_base::time::Instant::NEVER, IO_TIMEOUT);
            Ok(stream)
        }
        (_, AdmissionReply::Refused(refusal)) => Err(SecureConnectError::Refused(refusal)),
        (_, AdmissionReply::Paired { .. }) => Err(remote.greeting_error(GreetingError::Malformed)),
    }
}

/// Tries again what ended because too many others were there.
fn with_retries<T>(
    mut once: impl FnMut() -> Result<T, SecureConnectError>,
) -> Result<T, SecureConnectError> {
    let mut pause = RETRY_DELAY;
    for _ in 1..TRIES {
        match once() {
            Err(error) if error.is_retryable() => {}
            outcome => return outcome,
        }
        plumb_clock::sleep_until(plumb_clock::monotonic_ns() + pause.as_ns());
        pause = pause * 2;
    }
    once()
}

impl SecureConnectError {
    /// Whether the agent closed the connection before it said anything.
    fn is_retryable(&self) -> bool {
        use io::ErrorKind;
        let (Self::Handshake { error, .. }
        | Self::Greeting { error: GreetingError::Connection(error), .. }) = self
        else {
            return false;
        };
        matches!(
            error.kind(),
            ErrorKind::UnexpectedEof
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::NotConnected
        )
    }
}

/// Pairs with an agent by its token; it is known from then on. `own_name` is what this host is called
/// in the agent's list.
///
/// # Errors
/// [`SecureConnectError`]. An agent that does not prove itself in return is not remembered.
pub fn pair(
    identity: &HostIdentity,
    peers: &PeerStore,
    remote: &AgentAddress,
    own_name: &str,
    token: &PairingToken,
) -> Result<Fingerprint, SecureConnectError> {
    let mut stream = with_retries(|| handshake(identity, remote))?;
    let binding =
        stream.binding(identity.fingerprint()).map_err(|error| remote.handshake_error(error))?;
    let proof = token.prove(PairingSide::Client, &binding);
    let name = identity::sanitize_name(own_name);
    match request_admission(&mut stream, remote, AdmissionIntent::Pair { name, proof })? {
        AdmissionReply::Paired { proof } if token.verify(PairingSide::Agent, &binding, &proof) => {
            let fingerprint = binding.agent;
            peers.add(&PairedPeer {
                kind: PairedRole::Agent,
                name: remote.name.clone(),
                fingerprint,
            })?;
            stream.close();
            Ok(fingerprint)
        }
        AdmissionReply::Paired { .. } => {
            Err(SecureConnectError::Impostor { name: remote.name.clone() })
        }
        AdmissionReply::Refused(refusal) => Err(SecureConnectError::Refused(refusal)),
        AdmissionReply::Welcome => Err(remote.greeting_error(GreetingError::Malformed)),
    }
}

fn handshake(
    identity: &HostIdentity,
    remote: &AgentAddress,
) -> Result<SecureStream, SecureConnectError> {
    let deadline = plumb_clock::now() + CONNECT_TIMEOUT;
    let configuration = verifier::client_configuration(identity)?;
    let socket = connect_any(remote)?;
    socket.set_nodelay(true).ok();
    let name = ServerName::try_from(NAME).expect("the name is a word of letters");
    let connection = ClientConnection::new(configuration, name)?;
    let socket = DeadlineStream::new(socket, deadline, CONNECT_TIMEOUT);
    SecureStream::handshake(connection.into(), socket)
        .map_err(|error| remote.handshake_error(error))
}

/// Connects to the first address that answers.
fn connect_any(remote: &AgentAddress) -> Result<TcpStream, SecureConnectError> {
    let deadline = plumb_clock::now() + CONNECT_TIMEOUT;
    let mut last = (String::new(), io::Error::new(io::ErrorKind::NotFound, "it has no address"));
    for (index, address) in remote.addresses.iter().enumerate() {
        // An address that does not answer leaves time for the others.
        let rest = u64::try_from(remote.addresses.len() - index).unwrap_or(1);
        let left = deadline.saturating_since(plumb_clock::now()) / rest;
        match TcpStream::connect_timeout(address, Duration::from(left.max(Span::from_ms(1)))) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = (address.to_string(), error),
        }
    }
    let (address, error) = last;
    let fix = match error.kind() {
        io::ErrorKind::ConnectionRefused => "start 'plumb agent --listen' there",
        io::ErrorKind::TimedOut => "a firewall may drop the packets: open the port there",
        _ => "check the name, the address and the route",
    };
    Err(SecureConnectError::Unreachable { name: remote.name.clone(), address, error, fix })
}

fn request_admission(
    stream: &mut SecureStream,
    remote: &AgentAddress,
    wish: AdmissionIntent,
) -> Result<AdmissionReply, SecureConnectError> {
    let greeting = AdmissionRequest { magic: MAGIC, version: VERSION, wish };
    let said = admission::write(stream, &greeting);
    // An agent that refuses early has answered and closed: its reason is better than a broken pipe.
    match (admission::read(stream), said) {
        (Ok(answer), _) => Ok(answer),
        (Err(error), Ok(())) | (Err(_), Err(error)) => Err(remote.greeting_error(error)),
    }
}
