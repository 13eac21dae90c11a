//! Pairing: a one-time token, the proofs made with it, and the window in which an agent takes it.
//!
//! A proof is an HMAC over both certificates and over the channel itself (the `tls-exporter` binding
//! of RFC 9266), so it is worth nothing on any other connection. Eighty random bits withstand a
//! man in the middle who takes a proof home to try every token on it. It may be used once, for some minutes, with few
//! wrong tries.

use std::fmt;
use std::str::FromStr;

use plumb_base::time::{Instant, Span};
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};

use super::admission::{AdmissionRefusal, PairingProof};
use super::identity::Fingerprint;

/// Crockford's base 32: no i, l, o, u, so that a token can be read aloud.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const BYTES: usize = 10;
const LETTERS: usize = BYTES * 8 / 5;

/// A one-time token.
#[derive(Clone, PartialEq, Eq)]
pub struct PairingToken([u8; BYTES]);

/// A text that is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "that is no pairing token; it has 16 letters and digits, as 'plumb agent --pair' prints it"
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
        let mut bytes = [0; BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_| RandomnessError)?;
        Ok(Self(bytes))
    }

    /// The proof of one side.
    pub fn prove(&self, side: PairingSide, binding: &PairingBinding) -> PairingProof {
        let mut proof = [0; 32];
        proof.copy_from_slice(hmac::sign(&self.key(), &message(side, binding)).as_ref());
        proof
    }

    /// Whether a proof is that side's, in time that does not tell by how much it is not.
    pub fn verify(
        &self,
        side: PairingSide,
        binding: &PairingBinding,
        proof: &PairingProof,
    ) -> bool {
        hmac::verify(&self.key(), &message(side, binding), proof).is_ok()
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

fn message(side: PairingSide, binding: &PairingBinding) -> Vec<u8> {
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
        bits <<= 128 - BYTES * 8;
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
        let mut bytes = [0; BYTES];
        bytes.copy_from_slice(&bits.to_be_bytes()[16 - BYTES..]);
        Ok(Self(bytes))
    }
}

/// How long a token may be used.
pub const OPEN_FOR: Span = Span::from_secs(600);
/// Wrong tries after which the token is worth nothing.
pub const FAILURES_MAX: u32 = 5;
/// How long nobody is heard after the first wrong try; twice as long after each further one.
pub const FAILURE_DELAY: Span = Span::from_secs(1);

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
    use super::*;

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
