//! Who is admitted over TLS, and pairing: what the two sides say before a session begins, one message each way; a
//! one-time token, the proofs made with it, and the window in which an agent takes it.
//!
//! A proof is an HMAC over both certificates and over the channel itself (the `tls-exporter` binding of RFC 9266), so it
//! is worth nothing on any other connection. Eighty random bits withstand a man in the middle who takes a proof home to
//! try every token on it. It may be used once, for some minutes, with few wrong tries.
//!
//! A message is a length of two bytes, then postcard. The first fields never change, so that another version can
//! at least be named.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use plumb_base::time::{Instant, Span};
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::identity::Fingerprint;

/// What a greeting begins with.
pub const MAGIC: [u8; 8] = *b"plumbnet";
/// The version of what is said here.
pub const VERSION: u16 = 1;
/// Longest message that is read.
pub const MESSAGE_BYTES_MAX: usize = 512;
/// Crockford's base 32: no i, l, o, u, so that a token can be read aloud.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const TOKEN_BYTES: usize = 10;
const LETTERS: usize = TOKEN_BYTES * 8 / 5;

/// Bytes of a proof that its maker knows the pairing's token.
pub type PairingProof = [u8; 32];

/// What a client says first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionRequest {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`] of the client.
    pub version: u16,
    /// What it wants.
    pub wish: AdmissionIntent,
}

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdmissionIntent {
    /// A session, as somebody who has been paired.
    Session,
    /// To be paired.
    Pair {
        /// What it calls itself.
        name: String,
        /// That it knows the token.
        proof: PairingProof,
    },
}

/// What the agent answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdmissionReply {
    /// The session begins.
    Welcome,
    /// The two are paired.
    Paired {
        /// That the agent knows the token too.
        proof: PairingProof,
    },
    /// Nothing begins.
    Refused(AdmissionRefusal),
}

/// Why an agent refuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum AdmissionRefusal {
    /// The certificate is of nobody it was paired with.
    #[error(
        "the agent was never paired with this host, whose key is {client}; run 'plumb agent \
         --listen --pair' there, then 'plumb net HOST --pair TOKEN' here"
    )]
    NotPaired {
        /// The certificate that it saw.
        client: Fingerprint,
    },
    /// Nobody asked it to pair.
    #[error("the agent is not pairing; start it there with 'plumb agent --listen --pair'")]
    NotPairing,
    /// Not the token.
    #[error("that is not the token ({tries_left} tries left); read it again where the agent runs")]
    WrongToken {
        /// After which the token is worth nothing.
        tries_left: u32,
    },
    /// A wrong token was tried a moment ago.
    #[error("a wrong token was tried a moment ago; try again in {wait_ms} ms")]
    TooSoon {
        /// Until which nobody is heard.
        wait_ms: u64,
    },
    /// Its time is over.
    #[error("the token has expired; start the agent with --pair again for a new one")]
    TokenExpired,
    /// It was used.
    #[error("the token was used already; start the agent with --pair again for a new one")]
    TokenUsed,
    /// Too many wrong tries.
    #[error(
        "wrong tokens were tried too often, so this one is no longer valid; start the agent with \
         --pair again for a new one, and ask who tried"
    )]
    TokenSpoilt,
    /// As many as it serves at a time.
    #[error(
        "the agent serves as many clients as it may ({limit}); wait for one to end, or start it with a larger \
         --max-clients"
    )]
    Busy {
        /// Its limit.
        limit: u32,
    },
    /// Another version.
    #[error(
        "the agent speaks version {agent} of this greeting; install the same plumb on both hosts"
    )]
    Version {
        /// Its version.
        agent: u16,
    },
    /// It could not make sense of the greeting.
    #[error("the agent could not read the greeting; install the same plumb on both hosts")]
    Malformed,
    /// The agent cannot read or write its files.
    #[error("the agent failed; see what it prints there")]
    AgentFailure,
    /// As many as it serves of one client at a time.
    #[error(
        "the agent serves this host {limit} times already, which is its limit; wait for one to end"
    )]
    BusyWithPeer {
        /// Its limit.
        limit: u32,
    },
    /// So many came at once that this one had to make room.
    #[error("too many connections come to the agent at once; try again")]
    Crowded,
}

/// A message could not be exchanged.
#[derive(Debug, thiserror::Error)]
pub enum GreetingError {
    /// The connection.
    #[error("the connection failed ({0}); is the other side still running?")]
    Connection(#[from] io::Error),
    /// Longer than any message.
    #[error("a greeting of {0} bytes is too long; is it plumb on the other side?")]
    TooLong(usize),
    /// Not a message.
    #[error("the greeting makes no sense; is it plumb, of the same version, on the other side?")]
    Malformed,
}

/// Writes one message.
///
/// # Errors
/// The connection's.
pub fn write<T: Serialize>(stream: &mut impl Write, message: &T) -> Result<(), GreetingError> {
    let body = postcard::to_stdvec(message).map_err(|_| GreetingError::Malformed)?;
    if body.len() > MESSAGE_BYTES_MAX {
        return Err(GreetingError::TooLong(body.len()));
    }
    let len = u16::try_from(body.len()).map_err(|_| GreetingError::TooLong(body.len()))?;
    stream.write_all(&[&len.to_be_bytes()[..], &body].concat())?;
    stream.flush()?;
    Ok(())
}

/// Reads one message.
///
/// # Errors
/// [`GreetingError`]. Nothing is read beyond the message, and no more than [`MESSAGE_BYTES_MAX`].
pub fn read<T: DeserializeOwned>(stream: &mut impl Read) -> Result<T, GreetingError> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let len = usize::from(u16::from_be_bytes(len));
    if len > MESSAGE_BYTES_MAX {
        return Err(GreetingError::TooLong(len));
    }
    let mut body = [0; MESSAGE_BYTES_MAX];
    stream.read_exact(&mut body[..len])?;
    let (message, rest) =
        postcard::take_from_bytes(&body[..len]).map_err(|_| GreetingError::Malformed)?;
    if rest.is_empty() { Ok(message) } else { Err(GreetingError::Malformed) }
}

/// A one-time token.
#[derive(Clone, PartialEq, Eq)]
pub struct PairingToken([u8; TOKEN_BYTES]);

/// A text that is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "that is not a pairing token; one has 16 letters and digits, as 'plumb agent --pair' prints it"
)]
pub struct PairingTokenParseError;

/// The system has no randomness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system's source of randomness does not answer; is /dev/urandom there?")]
pub struct RandomnessError;

/// Which side makes a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairingSide {
    /// The one that connected.
    Client,
    /// The one that listens.
    Agent,
}

/// What a proof binds together: both certificates and the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairingBinding {
    /// Of the side that connected.
    pub client: Fingerprint,
    /// Of the side that listens.
    pub agent: Fingerprint,
    /// `tls-exporter` of RFC 9266: differs for each connection.
    pub exporter: [u8; 32],
}

impl PairingToken {
    /// A new one.
    ///
    /// # Errors
    /// Without randomness.
    pub fn generate() -> Result<Self, RandomnessError> {
        let mut bytes = [0; TOKEN_BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_| RandomnessError)?;
        Ok(Self(bytes))
    }

    /// The proof of one side.
    pub fn prove(&self, side: PairingSide, binding: &PairingBinding) -> PairingProof {
        let mut proof = [0; 32];
        proof.copy_from_slice(hmac::sign(&self.key(), &proved_bytes(side, binding)).as_ref());
        proof
    }

    /// Whether a proof is that side's, in time that does not tell by how much it is not.
    pub fn verify(
        &self,
        side: PairingSide,
        binding: &PairingBinding,
        proof: &PairingProof,
    ) -> bool {
        hmac::verify(&self.key(), &proved_bytes(side, binding), proof).is_ok()
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

fn proved_bytes(side: PairingSide, binding: &PairingBinding) -> Vec<u8> {
    let side: &[u8] = match side {
        PairingSide::Client => b"plumb pairing 1 client",
        PairingSide::Agent => b"plumb pairing 1 agent.",
    };
    [side, binding.client.as_bytes(), binding.agent.as_bytes(), &binding.exporter].concat()
}

impl fmt::Display for PairingToken {
    /// Four groups of four: `k7m2-q9xd-3fhw-8tnv`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bits = self.0.iter().fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
        bits <<= 128 - TOKEN_BYTES * 8;
        for letter in 0..LETTERS {
            if letter > 0 && letter % 4 == 0 {
                f.write_str("-")?;
            }
            let digit = usize::try_from(bits >> 123).unwrap_or(0);
            write!(f, "{}", char::from(DIGITS[digit]))?;
            bits <<= 5;
        }
        Ok(())
    }
}

impl fmt::Debug for PairingToken {
    /// Never the token: what is debugged ends up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl FromStr for PairingToken {
    type Err = PairingTokenParseError;

    fn from_str(text: &str) -> Result<Self, PairingTokenParseError> {
        let mut bits = 0_u128;
        let mut letters = 0;
        for letter in text.bytes().filter(|b| !b" -".contains(b)) {
            let letter = match letter.to_ascii_lowercase() {
                b'i' | b'l' => b'1',
                b'o' => b'0',
                other => other,
            };
            let digit = DIGITS.iter().position(|&d| d == letter).ok_or(PairingTokenParseError)?;
            letters += 1;
            if letters > LETTERS {
                return Err(PairingTokenParseError);
            }
            bits = bits << 5 | u128::try_from(digit).map_err(|_| PairingTokenParseError)?;
        }
        if letters != LETTERS {
            return Err(PairingTokenParseError);
        }
        let mut bytes = [0; TOKEN_BYTES];
        bytes.copy_from_slice(&bits.to_be_bytes()[16 - TOKEN_BYTES..]);
        Ok(Self(bytes))
    }
}

/// How long a token may be used.
const OPEN_FOR: Span = Span::from_secs(600);
/// Wrong tries after which the token is worth nothing.
const FAILURES_MAX: u32 = 5;
/// How long nobody is heard after the first wrong try; twice as long after each further one.
const FAILURE_DELAY: Span = Span::from_secs(1);

/// One pairing that the agent is ready for.
#[derive(Clone, Debug)]
pub struct PairingWindow {
    token: PairingToken,
    closes: Instant,
    failures: u32,
    locked_until: Instant,
    state: WindowState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WindowState {
    Open,
    Used,
    Locked,
}

impl PairingWindow {
    /// Opens now.
    pub fn open(token: PairingToken, now: Instant) -> Self {
        let (wrong, state) = (0, WindowState::Open);
        Self { token, closes: now + OPEN_FOR, failures: wrong, locked_until: now, state }
    }

    /// Whether a right proof would still be taken.
    pub fn is_open(&self, now: Instant) -> bool {
        self.state == WindowState::Open && now < self.closes
    }

    /// Takes a client's proof: the agent's own in return, and the token is used up.
    ///
    /// # Errors
    /// [`AdmissionRefusal`]; a wrong proof counts and makes everybody wait, one that comes too soon does not
    /// count.
    pub fn attempt(
        &mut self,
        now: Instant,
        proof: &PairingProof,
        binding: &PairingBinding,
    ) -> Result<PairingProof, AdmissionRefusal> {
        match self.state {
            WindowState::Used => return Err(AdmissionRefusal::TokenUsed),
            WindowState::Locked => return Err(AdmissionRefusal::TokenSpoilt),
            WindowState::Open => {}
        }
        if now >= self.closes {
            return Err(AdmissionRefusal::TokenExpired);
        }
        if now < self.locked_until {
            let wait_ms = (self.locked_until - now).as_ns().div_ceil(1_000_000);
            return Err(AdmissionRefusal::TooSoon { wait_ms });
        }
        if self.token.verify(PairingSide::Client, binding, proof) {
            self.state = WindowState::Used;
            return Ok(self.token.prove(PairingSide::Agent, binding));
        }
        self.locked_until = now + FAILURE_DELAY * (1 << self.failures);
        self.failures += 1;
        let tries_left = FAILURES_MAX - self.failures;
        if tries_left == 0 {
            self.state = WindowState::Locked;
        }
        Err(AdmissionRefusal::WrongToken { tries_left })
    }
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;
    use rand::RngExt as _;

    use super::*;

    fn greeting() -> AdmissionRequest {
        let wish = AdmissionIntent::Pair { name: "alice@laptop".to_owned(), proof: [3; 32] };
        AdmissionRequest { magic: MAGIC, version: VERSION, wish }
    }

    #[test]
    fn messages_survive_the_wire_and_leave_what_follows() {
        let mut wire = Vec::new();
        write(&mut wire, &greeting()).unwrap();
        wire.extend_from_slice(b"next");
        let mut rest = wire.as_slice();
        assert_eq!(read::<AdmissionRequest>(&mut rest).unwrap(), greeting());
        assert_eq!(rest, b"next");
    }

    #[test]
    fn a_message_that_claims_too_much_is_refused_before_it_is_read() {
        let wire = vec![0xff; 70_000];
        assert!(matches!(
            read::<AdmissionRequest>(&mut &wire[..]),
            Err(GreetingError::TooLong(65_535))
        ));
        let long = AdmissionIntent::Pair { name: "x".repeat(1_000), proof: [0; 32] };
        let refused = write(&mut Vec::new(), &AdmissionRequest { wish: long, ..greeting() });
        assert!(matches!(refused, Err(GreetingError::TooLong(_))));
    }

    /// What can be read is read the same after it was written.
    fn read_again<T: Serialize + DeserializeOwned + PartialEq + fmt::Debug>(bytes: &[u8]) {
        let Ok(message) = read::<T>(&mut &bytes[..]) else { return };
        let mut written = Vec::new();
        if write(&mut written, &message).is_ok() {
            assert_eq!(read::<T>(&mut written.as_slice()).unwrap(), message);
        }
    }

    #[test]
    fn no_bytes_make_a_greeting_panic() {
        let seed = Seed(0x6e65_7473);
        println!("seed {seed:?}");
        let mut random = seed.stream("greeting");
        let mut valid = Vec::new();
        write(&mut valid, &greeting()).unwrap();
        for _ in 0..200_000 {
            let mut bytes = valid.clone();
            for _ in 0..random.random_range(1..8) {
                let at = random.random_range(0..bytes.len());
                bytes[at] = random.random();
            }
            bytes.truncate(random.random_range(0..=bytes.len()));
            read_again::<AdmissionRequest>(&bytes);
            read_again::<AdmissionReply>(&bytes);
        }
    }

    const NOW: Instant = Instant::after_origin(Span::from_secs(100));

    fn binding(exporter: u8) -> PairingBinding {
        let [client, agent] = [Fingerprint::of(b"client"), Fingerprint::of(b"agent")];
        PairingBinding { client, agent, exporter: [exporter; 32] }
    }

    /// An open window, its token, and the proof of a client that knows it.
    fn window() -> (PairingWindow, PairingToken, PairingProof) {
        let token = PairingToken::generate().unwrap();
        let proof = token.prove(PairingSide::Client, &binding(1));
        (PairingWindow::open(token.clone(), NOW), token, proof)
    }

    #[test]
    fn a_token_survives_being_read_aloud() {
        let token = PairingToken::generate().unwrap();
        let text = token.to_string();
        assert_eq!(text.len(), LETTERS + 3);
        assert_eq!(text.parse(), Ok(token.clone()));
        assert_eq!(text.to_uppercase().replace('-', " ").parse(), Ok(token.clone()));
        assert_eq!(text.replace('0', "O").replace('1', "l").parse(), Ok(token.clone()));
        assert!(!format!("{token:?}").contains(&text));
        for text in
            ["", "k7m2", "k7m2-q9xd-3fhw-8tn", "k7m2-q9xd-3fhw-8tnvv", "k7m2-q9xd-3fhw-8tn!"]
        {
            assert_eq!(text.parse::<PairingToken>(), Err(PairingTokenParseError), "{text}");
        }
    }

    #[test]
    fn a_proof_holds_for_one_side_one_pair_and_one_connection_only() {
        let (_, token, proof) = window();
        assert!(token.verify(PairingSide::Client, &binding(1), &proof));
        assert!(!token.verify(PairingSide::Agent, &binding(1), &proof));
        let other = Fingerprint::of(b"somebody else");
        for other in [
            binding(2),
            PairingBinding { client: other, ..binding(1) },
            PairingBinding { agent: other, ..binding(1) },
        ] {
            assert!(!token.verify(PairingSide::Client, &other, &proof));
        }
        let other = PairingToken::generate().unwrap();
        assert!(!other.verify(PairingSide::Client, &binding(1), &proof));
    }

    #[test]
    fn a_token_pairs_once_and_the_agent_proves_itself_too() {
        let (mut window, token, proof) = window();
        let answer = window.attempt(NOW, &proof, &binding(1)).unwrap();
        assert!(token.verify(PairingSide::Agent, &binding(1), &answer));
        assert!(!window.is_open(NOW));
        assert_eq!(window.attempt(NOW, &proof, &binding(1)), Err(AdmissionRefusal::TokenUsed));
    }

    #[test]
    fn a_token_expires() {
        let (mut window, _, proof) = window();
        let late = NOW + OPEN_FOR;
        assert!(!window.is_open(late));
        assert_eq!(window.attempt(late, &proof, &binding(1)), Err(AdmissionRefusal::TokenExpired));
    }

    #[test]
    fn wrong_tries_wait_ever_longer_and_spoil_the_token() {
        let (mut window, _, proof) = window();
        let mut now = NOW;
        let mut waits = Vec::new();
        for left in (0..FAILURES_MAX).rev() {
            // Recorded on another connection.
            let refused = window.attempt(now, &proof, &binding(2));
            assert_eq!(refused, Err(AdmissionRefusal::WrongToken { tries_left: left }));
            // A right one that comes too soon does not count.
            if let Err(AdmissionRefusal::TooSoon { wait_ms }) =
                window.attempt(now, &proof, &binding(1))
            {
                waits.push(wait_ms);
                now += Span::from_ms(wait_ms);
                assert!(window.clone().attempt(now, &proof, &binding(1)).is_ok());
            }
        }
        assert_eq!(waits, [1_000, 2_000, 4_000, 8_000]);
        assert_eq!(window.attempt(now, &proof, &binding(1)), Err(AdmissionRefusal::TokenSpoilt));
    }
}
