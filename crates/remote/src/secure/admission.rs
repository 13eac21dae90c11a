//! What the two sides say over TLS before a session begins: one message each way.
//!
//! A length of two bytes, then postcard. The first fields never change, so that another version can
//! at least be named.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::identity::Fingerprint;

/// What a greeting begins with.
pub const MAGIC: [u8; 8] = *b"plumbnet";
/// The version of what is said here.
pub const VERSION: u16 = 1;
/// Longest message that is read.
pub const MESSAGE_BYTES_MAX: usize = 512;

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
        "wrong tokens were tried too often, so this one is worth nothing; start the agent with \
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
    /// Something is wrong over there.
    #[error("the agent has trouble of its own; look at what it prints there")]
    Trouble,
    /// As many as it serves of one client at a time.
    #[error(
        "the agent serves this host {limit} times already, which is all it may; wait for one to end"
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
    #[error("a greeting of {0} bytes is longer than any; is it plumb on the other side?")]
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

/// The body of a fuzz test: any bytes are read as either side would.
pub fn fuzz(bytes: &[u8]) {
    if let Ok(greeting) = read::<AdmissionRequest>(&mut &bytes[..]) {
        let mut written = Vec::new();
        if write(&mut written, &greeting).is_ok() {
            assert_eq!(read::<AdmissionRequest>(&mut written.as_slice()).ok(), Some(greeting));
        }
    }
    if let Ok(answer) = read::<AdmissionReply>(&mut &bytes[..]) {
        let mut written = Vec::new();
        if write(&mut written, &answer).is_ok() {
            assert_eq!(read::<AdmissionReply>(&mut written.as_slice()).ok(), Some(answer));
        }
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
            fuzz(&bytes);
        }
    }
}
