//! What a stream of a measured QUIC connection is for: the test's token, and requests of a size or the end of all.
//!
//! Written by hand, because its numbers are a promise to the other side's version: 0, 2 and 3 have had a meaning. Left
//! out: obeying it.

use std::io;

use plumb_remote::token::{TOKEN_BYTES, TestToken};

/// Bytes of an order on the wire: what is not used is zero.
pub const PURPOSE_BYTES: usize = 64;
const EXCHANGE: u8 = 1;
const DONE: u8 = 4;

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuicStreamPurpose {
    /// Requests and responses of these sizes.
    Exchange {
        /// Bytes of a request.
        request_bytes: u32,
        /// Bytes of a response.
        response_bytes: u32,
    },
    /// The client is done: no more connections come.
    Done,
}

impl QuicStreamPurpose {
    /// Its bytes, with the token before it.
    pub fn encode(self, token: &TestToken) -> [u8; PURPOSE_BYTES] {
        let mut bytes = [0; PURPOSE_BYTES];
        let (head, body) = bytes.split_at_mut(TOKEN_BYTES);
        head.copy_from_slice(&token.0);
        let written = match self {
            Self::Exchange { request_bytes, response_bytes } => {
                postcard::to_slice(&(EXCHANGE, request_bytes, response_bytes), body)
            }
            Self::Done => postcard::to_slice(&DONE, body),
        };
        written.expect("an order is shorter than its room");
        bytes
    }

    /// Reads one with the right token.
    ///
    /// # Errors
    /// Another token, or no order.
    pub fn decode(bytes: &[u8; PURPOSE_BYTES], token: &TestToken) -> io::Result<Self> {
        let refuse = |why| io::Error::new(io::ErrorKind::PermissionDenied, why);
        let body = &bytes[TOKEN_BYTES..];
        if !token.matches_prefix(bytes) {
            return Err(refuse("the connection does not show this session's token"));
        }
        let nonsense = || refuse("what the connection is for makes no sense");
        match body[0] {
            EXCHANGE => {
                let (request_bytes, response_bytes) =
                    postcard::from_bytes(&body[1..]).map_err(|_| nonsense())?;
                Ok(Self::Exchange { request_bytes, response_bytes })
            }
            DONE => Ok(Self::Done),
            _ => Err(nonsense()),
        }
    }
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;
    use rand::RngExt as _;

    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written_with_the_token_only() {
        let token = TestToken([7; TOKEN_BYTES]);
        let most =
            QuicStreamPurpose::Exchange { request_bytes: u32::MAX, response_bytes: u32::MAX };
        for order in [most, QuicStreamPurpose::Done] {
            assert_eq!(QuicStreamPurpose::decode(&order.encode(&token), &token).unwrap(), order);
            assert!(
                QuicStreamPurpose::decode(&order.encode(&token), &TestToken([8; TOKEN_BYTES]))
                    .is_err()
            );
        }
    }

    /// Another number would be another version of the protocol.
    #[test]
    fn the_numbers_of_orders_stay_what_they_are() {
        let small = QuicStreamPurpose::Exchange { request_bytes: 5, response_bytes: 6 };
        assert_eq!(small.encode(&TestToken([0; TOKEN_BYTES]))[TOKEN_BYTES..][..4], [1, 5, 6, 0]);
        assert_eq!(
            QuicStreamPurpose::Done.encode(&TestToken([0; TOKEN_BYTES]))[TOKEN_BYTES..][..2],
            [4, 0]
        );
    }

    #[test]
    fn no_bytes_make_an_order_panic() {
        let seed = Seed(0x6f72_6465);
        println!("seed {seed:?}");
        let mut random = seed.stream("order");
        for _ in 0..100_000 {
            let mut bytes = [0; PURPOSE_BYTES];
            random.fill(&mut bytes[TOKEN_BYTES..]);
            if random.random() {
                bytes[TOKEN_BYTES] %= 5;
            }
            let _either = QuicStreamPurpose::decode(&bytes, &TestToken([0; TOKEN_BYTES]));
        }
    }
}
