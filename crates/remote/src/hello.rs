//! The first frame of either side: readable by any version.
//!
//! Its layout never changes: magic (8 bytes), oldest and newest version spoken (2 bytes each, little-endian),
//! features (8 bytes), length and text of the program's version. What may follow is of a later version and is
//! passed over. Left out: what a version means (`super::message`).

/// What every hello begins with.
pub const MAGIC: [u8; 8] = *b"plumbnet";
/// The oldest version of the protocol that this program speaks.
pub const VERSION_OLDEST: u16 = 8;
/// The newest version of the protocol that this program speaks.
pub const VERSION_NEWEST: u16 = 8;
/// Longest hello that is read.
pub const HELLO_MAX: usize = 512;
/// Longest text of a program's version.
const PROGRAM_MAX: usize = 200;
/// Bytes before that text.
const FIXED: usize = 8 + 2 + 2 + 8 + 1;

/// What a side says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolHello {
    /// The oldest version it speaks.
    pub oldest: u16,
    /// The newest version it speaks.
    pub newest: u16,
    /// What it can do beyond the version: a bit each.
    pub features: u64,
    /// Its program's version and commit.
    pub program: String,
}

/// What came first is no hello, or the two sides have no version in common.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// Other bytes than a hello's.
    #[error(
        "what answers is not plumb: it began with \"{said}\"; check the command that starts the agent, and \
         that the shell over there prints nothing of its own when it starts"
    )]
    NotPlumb {
        /// The first of them, as text.
        said: String,
    },
    /// No version in common.
    #[error(
        "the two sides speak different versions: {here} here speaks {ours_oldest} to {ours_newest}, {there} \
         there speaks {theirs_oldest} to {theirs_newest}; bring the older side up to date \
         (plumb net --install copies this one over)"
    )]
    Skew {
        /// This program's version.
        here: String,
        /// Our oldest.
        ours_oldest: u16,
        /// Our newest.
        ours_newest: u16,
        /// The other program's version.
        there: String,
        /// Their oldest.
        theirs_oldest: u16,
        /// Their newest.
        theirs_newest: u16,
    },
}

impl ProtocolHello {
    /// This program's.
    pub fn of_this_program(program: &str) -> Self {
        let cut =
            (0..=PROGRAM_MAX.min(program.len())).rev().find(|&at| program.is_char_boundary(at));
        Self {
            oldest: VERSION_OLDEST,
            newest: VERSION_NEWEST,
            features: 0,
            program: program[..cut.unwrap_or(0)].to_owned(),
        }
    }

    /// Its bytes, without a frame around them.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.oldest.to_le_bytes());
        bytes.extend_from_slice(&self.newest.to_le_bytes());
        bytes.extend_from_slice(&self.features.to_le_bytes());
        bytes.push(u8::try_from(self.program.len()).expect("cut to fit when it was made"));
        bytes.extend_from_slice(self.program.as_bytes());
        bytes
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`HelloError::NotPlumb`] for any other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, HelloError> {
        Self::read(bytes).ok_or_else(|| not_plumb(bytes))
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (fixed, rest) = bytes.split_first_chunk::<FIXED>()?;
        if fixed[..8] != MAGIC {
            return None;
        }
        let short = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
        let text = rest.get(..usize::from(fixed[FIXED - 1]))?;
        Some(Self {
            oldest: short(8),
            newest: short(10),
            features: u64::from_le_bytes(fixed[12..20].try_into().ok()?),
            program: String::from_utf8_lossy(text).into_owned(),
        })
    }

    /// The version that both speak: the newest one.
    ///
    /// # Errors
    /// [`HelloError::Skew`] where there is none.
    pub fn negotiate(&self, theirs: &Self) -> Result<u16, HelloError> {
        let version = self.newest.min(theirs.newest);
        if version >= self.oldest.max(theirs.oldest) {
            return Ok(version);
        }
        Err(HelloError::Skew {
            here: self.program.clone(),
            ours_oldest: self.oldest,
            ours_newest: self.newest,
            there: theirs.program.clone(),
            theirs_oldest: theirs.oldest,
            theirs_newest: theirs.newest,
        })
    }
}

/// The error for bytes that are no hello.
pub fn not_plumb(bytes: &[u8]) -> HelloError {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
    HelloError::NotPlumb { said: head.escape_debug().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_reads_as_it_was_written_and_a_longer_one_of_later_days_too() {
        let hello = ProtocolHello::of_this_program("0.1.0 (abc)");
        let mut bytes = hello.encode();
        assert_eq!(ProtocolHello::decode(&bytes).unwrap(), hello);
        bytes.extend_from_slice(b"something of version 7");
        assert_eq!(ProtocolHello::decode(&bytes).unwrap(), hello);
        assert!(ProtocolHello::of_this_program(&"ä".repeat(300)).encode().len() <= HELLO_MAX);
    }

    #[test]
    fn other_bytes_are_named_with_what_was_said() {
        let error = ProtocolHello::decode(b"bash: plumb: command not found\n").unwrap_err();
        assert!(error.to_string().contains("bash: plumb: command not found"), "{error}");
        for len in 0..FIXED {
            assert!(
                ProtocolHello::decode(&ProtocolHello::of_this_program("x").encode()[..len])
                    .is_err()
            );
        }
    }

    #[test]
    fn the_newest_common_version_is_spoken_and_none_is_a_named_skew() {
        let ours = ProtocolHello { oldest: 2, newest: 5, features: 0, program: "a".to_owned() };
        let other =
            |oldest, newest| ProtocolHello { oldest, newest, features: 0, program: "b".to_owned() };
        assert_eq!(ours.negotiate(&other(1, 3)), Ok(3));
        assert_eq!(ours.negotiate(&other(4, 9)), Ok(5));
        assert!(matches!(ours.negotiate(&other(6, 9)), Err(HelloError::Skew { .. })));
        assert!(matches!(ours.negotiate(&other(0, 1)), Err(HelloError::Skew { .. })));
    }
}
