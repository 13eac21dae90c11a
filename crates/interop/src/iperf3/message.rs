//! What goes over iperf3's control connection: a byte that is a state, a cookie, JSON behind its
//! length, and the two numbers of an error.
//!
//! Left out: what the JSON says ([`super::parameters`], [`super::results`]), and when which is sent.

use std::fmt;

use serde_json::Value;

/// Bytes of a cookie: 36 letters and a zero.
pub const COOKIE_LEN: usize = 37;

/// Most bytes of the parameters of a test, as every server of the protocol has it.
pub const PARAMETERS_MAX: usize = 8 << 10;

/// Most bytes of results that a server reads: 128 streams each way take a tenth of it.
pub const RESULTS_MAX: usize = 1 << 20;

/// Most bytes of results that a client reads: the server's whole report may be among them.
pub const REPORT_MAX: usize = 64 << 20;

/// What one side tells the other by one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Iperf3Message {
    /// Streams are there: get ready.
    TestStart,
    /// Data may flow.
    TestRunning,
    /// The client has had enough.
    TestEnd,
    /// The client may send its parameters.
    ParameterExchange,
    /// The client may connect its streams.
    CreateStreams,
    /// The server is ending: somebody stopped it.
    ServerTerminate,
    /// The client is ending: somebody stopped it.
    ClientTerminate,
    /// The client may send its results; the server's follow.
    ExchangeResults,
    /// Both have everything.
    DisplayResults,
    /// The client says goodbye.
    Done,
    /// Another test is running.
    AccessDenied,
    /// Two numbers follow that say why.
    ServerError,
}

impl Iperf3Message {
    const ALL: [(Self, u8, &'static str); 12] = [
        (Self::TestStart, 1, "TEST_START"),
        (Self::TestRunning, 2, "TEST_RUNNING"),
        (Self::TestEnd, 4, "TEST_END"),
        (Self::ParameterExchange, 9, "PARAM_EXCHANGE"),
        (Self::CreateStreams, 10, "CREATE_STREAMS"),
        (Self::ServerTerminate, 11, "SERVER_TERMINATE"),
        (Self::ClientTerminate, 12, "CLIENT_TERMINATE"),
        (Self::ExchangeResults, 13, "EXCHANGE_RESULTS"),
        (Self::DisplayResults, 14, "DISPLAY_RESULTS"),
        (Self::Done, 16, "IPERF_DONE"),
        (Self::AccessDenied, 0xFF, "ACCESS_DENIED"),
        (Self::ServerError, 0xFE, "SERVER_ERROR"),
    ];

    /// The message of a byte, if it is one.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, number, _)| *number == byte).map(|(message, ..)| *message)
    }

    fn entry(self) -> (u8, &'static str) {
        let found = Self::ALL.iter().find(|(message, ..)| *message == self);
        found.map_or((0, ""), |(_, byte, name)| (*byte, name))
    }

    /// Its byte.
    pub fn byte(self) -> u8 {
        self.entry().0
    }
}

impl fmt::Display for Iperf3Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.entry().1)
    }
}

/// What every connection of a test begins with, so that the server knows it for one of the test's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Iperf3Cookie([u8; COOKIE_LEN]);

impl Iperf3Cookie {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

    /// A cookie of 36 bytes of chance.
    pub fn from_random(chance: &[u8; COOKIE_LEN - 1]) -> Self {
        let mut bytes = [0; COOKIE_LEN];
        for (to, from) in bytes.iter_mut().zip(chance) {
            *to = Self::LETTERS[usize::from(from % 32)];
        }
        Self(bytes)
    }

    /// A cookie as it was received; whatever it says, it need only say the same again.
    pub const fn received(bytes: [u8; COOKIE_LEN]) -> Self {
        Self(bytes)
    }

    /// As it is sent.
    pub const fn bytes(&self) -> &[u8; COOKIE_LEN] {
        &self.0
    }
}

impl fmt::Display for Iperf3Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.iter().take_while(|byte| **byte != 0);
        text.map(|byte| char::from(*byte)).filter(char::is_ascii_graphic).try_for_each(|letter| {
            use fmt::Write;
            f.write_char(letter)
        })
    }
}

impl fmt::Debug for Iperf3Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cookie({self})")
    }
}

/// JSON as it is sent: its length in four bytes, the highest first, then the text.
pub fn encode_frame(value: &Value) -> Vec<u8> {
    let text = value.to_string();
    // A report of four gigabytes cannot be made: its intervals are bounded.
    let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(4 + text.len());
    bytes.extend(len.to_be_bytes());
    bytes.extend(text.bytes());
    bytes
}

/// Why a text behind its length is not what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JsonFrameError(String);

/// How many bytes follow these four, where that is allowed.
///
/// # Errors
/// They are more than `limit`.
pub fn frame_len(head: [u8; 4], limit: usize, what: &'static str) -> Result<usize, JsonFrameError> {
    let len = u32::from_be_bytes(head);
    usize::try_from(len).ok().filter(|len| *len <= limit).ok_or_else(|| {
        JsonFrameError(format!(
            "{what} of {len} bytes are longer than the {limit} that they may have"
        ))
    })
}

/// The JSON in a frame's bytes. Some versions end it by a zero.
///
/// # Errors
/// They are none.
pub fn decode_frame(text: &[u8], what: &'static str) -> Result<Value, JsonFrameError> {
    let text = text.strip_suffix(&[0]).unwrap_or(text);
    serde_json::from_slice(text)
        .map_err(|error| JsonFrameError(format!("{what} are not JSON: {error}")))
}

/// Why a server gave up, in the protocol's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iperf3ErrorCode {
    /// Which of the protocol's errors.
    pub code: i32,
    /// The system's number, or 0.
    pub system: i32,
}

impl Iperf3ErrorCode {
    /// The client's parameters are not understood.
    pub const PARAMETERS: Self = Self { code: 114, system: 0 };
    /// A stream could not be made.
    pub const STREAM: Self = Self { code: 200, system: 0 };
    /// The client's results are not understood.
    pub const RESULTS: Self = Self { code: 117, system: 0 };
    /// A message that does not belong here.
    pub const MESSAGE: Self = Self { code: 110, system: 0 };
    /// The control connection broke.
    pub const CLOSED: Self = Self { code: 109, system: 0 };
    /// Nothing came for too long.
    pub const SILENCE: Self = Self { code: 144, system: 0 };
    /// The test took longer than it may.
    pub const EXPIRED: Self = Self { code: 160, system: 0 };
    /// More was asked for than the server allows.
    pub const RATE: Self = Self { code: 27, system: 0 };
    /// Longer was asked for than the server allows.
    pub const DURATION: Self = Self { code: 37, system: 0 };

    /// As it is sent, with its message before it.
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![Iperf3Message::ServerError.byte()];
        bytes.extend(self.code.to_be_bytes());
        bytes.extend(self.system.to_be_bytes());
        bytes
    }

    /// From the eight bytes behind the message.
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        let both = u64::from_be_bytes(bytes);
        let low = |word: u64| u32::try_from(word & 0xFFFF_FFFF).unwrap_or(0).cast_signed();
        Self { code: low(both >> 32), system: low(both) }
    }

    const fn meaning(self) -> &'static str {
        match self.code {
            5 => "the test is too long for it",
            6 => "it does not have that many streams",
            7 | 20 => "the blocks are too large for it",
            8 | 124 | 130 => "it cannot have socket buffers of that size",
            10 | 123 => "it cannot have segments of that size",
            13 => "it cannot do that",
            27 => "the rates together are more than it allows",
            28 | 31 | 144 => "it received nothing for too long",
            37 => "the test is longer than it allows",
            105..=113 => "the control connection failed",
            114 => "it did not understand the parameters",
            115..=117 => "it did not understand the results",
            119 => "it was told that the client ended",
            121 => "it is busy with another test",
            125..=127 | 145 => "it cannot mark packets that way",
            134 => "it does not have that congestion control",
            142 => "it wants a user and a password",
            160 => "the test took longer than was said",
            200..=208 => "a stream failed",
            _ => "it gave no reason that is known here",
        }
    }
}

impl fmt::Display for Iperf3ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (error {} of the protocol", self.meaning(), self.code)?;
        if self.system > 0 {
            write!(f, "; {}", std::io::Error::from_raw_os_error(self.system))?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_is_read_from_the_byte_it_is_sent_as() {
        for (message, byte, _) in Iperf3Message::ALL {
            assert_eq!(Iperf3Message::from_byte(message.byte()), Some(message));
            assert_eq!(message.byte(), byte);
        }
        assert_eq!(Iperf3Message::from_byte(3), None);
        assert_eq!(Iperf3Message::AccessDenied.byte().cast_signed(), -1);
    }

    #[test]
    fn a_cookie_is_of_the_protocols_letters_and_ends_in_a_zero() {
        let mut chance = [0; 36];
        for (number, byte) in (0_u8..).zip(&mut chance) {
            *byte = number.wrapping_mul(37);
        }
        let cookie = Iperf3Cookie::from_random(&chance);
        assert_eq!(cookie.bytes()[36], 0);
        assert_eq!(cookie.to_string().len(), 36);
        assert!(cookie.to_string().bytes().all(|letter| Iperf3Cookie::LETTERS.contains(&letter)));
    }

    #[test]
    fn a_frame_that_says_it_is_too_long_is_refused_before_it_is_read() {
        let error = frame_len([0, 0, 0x20, 1], PARAMETERS_MAX, "parameters").unwrap_err();
        assert_eq!(
            error.to_string(),
            "parameters of 8193 bytes are longer than the 8192 that they may have"
        );
        let bytes = encode_frame(&json!({"tcp": true}));
        let head = [bytes[0], bytes[1], bytes[2], bytes[3]];
        assert_eq!(frame_len(head, PARAMETERS_MAX, "parameters"), Ok(bytes.len() - 4));
        assert_eq!(decode_frame(&bytes[4..], "parameters"), Ok(json!({"tcp": true})));
        assert_eq!(decode_frame(b"{}\0", "parameters"), Ok(json!({})));
        assert!(decode_frame(b"{", "parameters").is_err());
    }

    #[test]
    fn an_error_keeps_both_of_its_numbers() {
        let fault = Iperf3ErrorCode { code: 134, system: 2 };
        let bytes = fault.bytes();
        assert_eq!(bytes[0], 0xFE);
        let mut numbers = [0; 8];
        numbers.copy_from_slice(&bytes[1..]);
        assert_eq!(Iperf3ErrorCode::from_bytes(numbers), fault);
        assert!(fault.to_string().contains("congestion control"), "{fault}");
    }
}
