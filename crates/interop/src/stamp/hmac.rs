//! The seal of the authenticated mode: HMAC-SHA-256 of what precedes it, cut to sixteen bytes (RFC 8762 §4.4).
//!
//! Left out: where keys come from.

use ring::hmac;

/// Bytes of a seal.
pub const LEN: usize = 16;

/// What both sides know.
#[derive(Clone)]
pub struct StampKey(hmac::Key);

impl StampKey {
    /// Of any bytes.
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The seal of the parts, one after the other.
    pub fn authenticate(&self, parts: &[&[u8]]) -> [u8; LEN] {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(part);
        }
        let mut seal = [0; LEN];
        seal.copy_from_slice(&context.sign().as_ref()[..LEN]);
        seal
    }

    /// Whether `seal` is that of the parts; takes as long whether it nearly is or not at all.
    pub fn verify(&self, parts: &[&[u8]], seal: &[u8]) -> bool {
        let right = self.authenticate(parts);
        let differing = right.iter().zip(seal).fold(0, |differing, (a, b)| differing | (a ^ b));
        seal.len() == LEN && differing == 0
    }
}

impl std::fmt::Debug for StampKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_the_first_half_of_the_published_digest() {
        // RFC 4231 §4.3, test case 2.
        let key = StampKey::new(b"Jefe");
        let seal = key.authenticate(&[b"what do ya want ", b"for nothing?"]);
        let expected = [
            0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24, 0x26, 0x08, 0x95,
            0x75, 0xc7,
        ];
        assert_eq!(seal, expected);
        assert!(key.verify(&[b"what do ya want for nothing?"], &seal));
        assert!(!key.verify(&[b"what do ya want for nothing"], &seal));
        assert!(!key.verify(&[b"what do ya want for nothing?"], &seal[..15]));
        assert!(!format!("{key:?}").contains("Jefe"));
    }
}
