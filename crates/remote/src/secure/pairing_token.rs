//! The one-time token of a pairing, and the proofs made with it.
//!
//! A proof is an HMAC over both certificates and over the channel itself (the `tls-exporter` binding
//! of RFC 9266), so it is worth nothing on any other connection. Eighty random bits withstand a
//! man in the middle who takes a proof home to try every token on it. Left out: how often and how
//! long a token may be tried (`super::window`).

use std::fmt;
use std::str::FromStr;

use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};

use super::identity::Fingerprint;

/// Crockford's base 32: no i, l, o, u, so that a token can be read aloud.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const BYTES: usize = 10;
const LETTERS: usize = BYTES * 8 / 5;

/// Bytes of a proof.
pub type PairingProof = [u8; 32];

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
        proof.copy_from_slice(self.tag(side, binding).as_ref());
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

    fn tag(&self, side: PairingSide, binding: &PairingBinding) -> hmac::Tag {
        hmac::sign(&self.key(), &message(side, binding))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn binding() -> PairingBinding {
        PairingBinding {
            client: Fingerprint::of(b"client"),
            agent: Fingerprint::of(b"agent"),
            exporter: [7; 32],
        }
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
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for text in
            ["", "k7m2", "k7m2-q9xd-3fhw-8tn", "k7m2-q9xd-3fhw-8tnvv", "k7m2-q9xd-3fhw-8tn!"]
        {
            assert_eq!(text.parse::<PairingToken>(), Err(PairingTokenParseError), "{text}");
        }
    }

    #[test]
    fn a_proof_holds_for_one_side_one_pair_and_one_connection_only() {
        let token = PairingToken::generate().unwrap();
        let proof = token.prove(PairingSide::Client, &binding());
        assert!(token.verify(PairingSide::Client, &binding(), &proof));
        assert!(!token.verify(PairingSide::Agent, &binding(), &proof));
        let other = PairingBinding { exporter: [8; 32], ..binding() };
        assert!(!token.verify(PairingSide::Client, &other, &proof));
        let other = PairingBinding { client: Fingerprint::of(b"somebody else"), ..binding() };
        assert!(!token.verify(PairingSide::Client, &other, &proof));
        let other = PairingBinding { agent: Fingerprint::of(b"in the middle"), ..binding() };
        assert!(!token.verify(PairingSide::Client, &other, &proof));
        assert!(!PairingToken::generate().unwrap().verify(PairingSide::Client, &binding(), &proof));
    }
}
