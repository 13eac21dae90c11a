//! The sixteen bytes that show that a connection or datagram belongs to a test.
//!
//! Left out: where the randomness comes from, which is the driver's.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Bytes of a token.
pub const TOKEN_BYTES: usize = 16;

/// Names a test to those who were told; 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TestToken(pub [u8; TOKEN_BYTES]);

impl TestToken {
    /// Whether `bytes` begin with this token; looks at all of it, whatever differs first.
    #[inline]
    pub fn matches_prefix(&self, bytes: &[u8]) -> bool {
        bytes.first_chunk::<TOKEN_BYTES>().is_some_and(|head| {
            self.0.iter().zip(head).fold(0, |differs, (ours, theirs)| differs | (ours ^ theirs))
                == 0
        })
    }
}

impl fmt::Debug for TestToken {
    /// Its first two bytes: enough to tell tests apart in a message, too little to join one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}{:02x}…", self.0[0], self.0[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_printed() {
        assert_eq!(format!("{:?}", TestToken([9; TOKEN_BYTES])), "0909…");
    }
}
