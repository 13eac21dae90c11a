//! What a test is to be: the parameters that a client sends before anything else.
//!
//! Written as the strictest version wants them; read from every version since 3.0, whose numbers may
//! be integers or not and whose truths may be numbers. What is not known is passed over. Left out: how
//! any of it is done.

use std::fmt::Display;

use plumb_base::time::Span;
use plumb_base::units::Rate;
use serde_json::{Map, Value, json};

/// Most streams in one direction.
pub const STREAMS_MAX: u32 = 128;
/// Longest test, in seconds.
pub const SECONDS_MAX: u32 = 86_400;
/// Longest time at the beginning that is not counted, in seconds.
pub const OMIT_MAX: u32 = 600;
/// Largest block of a stream of bytes.
pub const BLOCK_MAX: u32 = 1 << 20;
/// Smallest datagram: it holds its time and number.
pub const DATAGRAM_MIN: u32 = 16;
/// Largest datagram that IPv4 and IPv6 both carry.
pub const DATAGRAM_MAX: u32 = 65_507;
/// Largest segment that may be asked for.
pub const SEGMENT_MAX: u32 = 32_767;
/// Largest socket buffer that may be asked for.
pub const WINDOW_MAX: u32 = 512 << 20;
/// Longest name of a congestion control in Linux, with a zero at its end.
const CONGESTION_LEN_MAX: usize = 15;
/// Longest free text: title and extra data.
const TEXT_MAX: usize = 4 << 10;

/// What carries the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Iperf3Transport {
    /// A stream of bytes.
    #[default]
    Tcp,
    /// Datagrams with a number each.
    Udp,
}

impl Iperf3Transport {
    /// As reports name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

/// Who sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Iperf3Direction {
    /// The client.
    #[default]
    Forward,
    /// The server.
    Reverse,
    /// Both, over streams of their own.
    Both,
}

/// When a test is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Iperf3TestLength {
    /// After so many seconds; without end where it is 0.
    Seconds(u32),
    /// After so many bytes of all streams together.
    Bytes(u64),
    /// After so many blocks of all streams together.
    Blocks(u64),
}

impl Iperf3TestLength {
    /// Seconds, bytes and blocks as the protocol has them: 0 but for one.
    pub const fn numbers(self) -> (u32, u64, u64) {
        match self {
            Self::Seconds(seconds) => (seconds, 0, 0),
            Self::Bytes(bytes) => (0, bytes, 0),
            Self::Blocks(blocks) => (0, 0, blocks),
        }
    }
}

/// Everything that both sides must know about a test.
#[expect(clippy::struct_excessive_bools, reason = "each is a truth of its own in the protocol")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iperf3Parameters {
    /// What carries the data.
    pub protocol: Iperf3Transport,
    /// Who sends.
    pub direction: Iperf3Direction,
    /// When it is over.
    pub length_limit: Iperf3TestLength,
    /// Seconds at the beginning that are not counted.
    pub omit_seconds: u32,
    /// Streams in each direction.
    pub streams: u32,
    /// Bytes of a block, or of a datagram.
    pub length: u32,
    /// Bits a second of each stream; as fast as can be where absent.
    pub bitrate: Option<Rate>,
    /// Blocks sent in a row before the rate is looked at again.
    pub burst: u32,
    /// Bits a second at which the kernel paces each stream.
    pub pacing: Option<Rate>,
    /// How often a rate is looked at, for whoever cannot wait for each block.
    pub pacing_timer: Span,
    /// Bytes of socket buffers.
    pub window: Option<u32>,
    /// Largest segment.
    pub mss: Option<u32>,
    /// Type of service, or traffic class.
    pub type_of_service: u8,
    /// Whether small segments go at once.
    pub no_delay: bool,
    /// Whether datagrams must not be fragmented.
    pub no_fragments: bool,
    /// Name of the congestion control.
    pub congestion: Option<String>,
    /// Whether datagrams are numbered with 64 bits.
    pub wide_counters: bool,
    /// Whether blocks hold a pattern instead of chance.
    pub repeating: bool,
    /// Whether senders hand pages to the kernel instead of bytes.
    pub zerocopy: bool,
    /// Whether receivers have the kernel throw bytes away.
    pub skip_copy: bool,
    /// Whether the server's own report comes with its results.
    pub server_report: bool,
    /// A title that comes before each line of the server's.
    pub title: Option<String>,
    /// A text that goes into both reports.
    pub extra: Option<String>,
    /// The client's name of itself.
    pub version: String,
}

impl Default for Iperf3Parameters {
    fn default() -> Self {
        Self {
            protocol: Iperf3Transport::Tcp,
            direction: Iperf3Direction::Forward,
            length_limit: Iperf3TestLength::Seconds(10),
            omit_seconds: 0,
            streams: 1,
            length: 128 << 10,
            bitrate: None,
            burst: 0,
            pacing: None,
            pacing_timer: Span::from_ms(1),
            window: None,
            mss: None,
            type_of_service: 0,
            no_delay: false,
            no_fragments: false,
            congestion: None,
            wide_counters: false,
            repeating: false,
            zerocopy: false,
            skip_copy: false,
            server_report: false,
            title: None,
            extra: None,
            version: super::VERSION.to_owned(),
        }
    }
}

/// Why parameters cannot be met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParametersError(String);

impl ParametersError {
    fn new(why: &str) -> Self {
        Self(why.to_owned())
    }

    fn out_of_range(name: &str, value: impl Display, min: u64, max: u64) -> Self {
        Self(format!("'{name}' is {value}; it has to be between {min} and {max}"))
    }
}

impl Iperf3Parameters {
    /// Seconds that the test is to take with what is not counted of them; `None` where bytes say so.
    pub const fn seconds(&self) -> Option<u32> {
        match self.length_limit {
            Iperf3TestLength::Seconds(0)
            | Iperf3TestLength::Bytes(_)
            | Iperf3TestLength::Blocks(_) => None,
            Iperf3TestLength::Seconds(seconds) => Some(seconds.saturating_add(self.omit_seconds)),
        }
    }

    /// Bytes after which the test is over.
    pub const fn bytes(&self) -> Option<u64> {
        match self.length_limit {
            Iperf3TestLength::Bytes(bytes) => Some(bytes),
            Iperf3TestLength::Blocks(blocks) => Some(blocks.saturating_mul(self.length as u64)),
            Iperf3TestLength::Seconds(_) => None,
        }
    }

    /// For each stream in their order, whether the client sends on it.
    pub fn client_sends(&self) -> Vec<bool> {
        let streams = self.streams as usize;
        match self.direction {
            Iperf3Direction::Forward => vec![true; streams],
            Iperf3Direction::Reverse => vec![false; streams],
            Iperf3Direction::Both => (0..2 * streams).map(|index| index < streams).collect(),
        }
    }

    /// Whether they are within what the protocol allows.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check(&self) -> Result<(), ParametersError> {
        let range = |name, value: u64, min: u64, max: u64| {
            let is_within = (min..=max).contains(&value);
            is_within
                .then_some(())
                .ok_or_else(|| ParametersError::out_of_range(name, value, min, max))
        };
        let (length_min, length_max) = match self.protocol {
            Iperf3Transport::Tcp => (1, BLOCK_MAX),
            Iperf3Transport::Udp => (DATAGRAM_MIN, DATAGRAM_MAX),
        };
        range("len", self.length.into(), length_min.into(), length_max.into())?;
        range("parallel", self.streams.into(), 1, STREAMS_MAX.into())?;
        range("omit", self.omit_seconds.into(), 0, OMIT_MAX.into())?;
        if let Iperf3TestLength::Seconds(seconds) = self.length_limit {
            range("time", seconds.into(), 0, SECONDS_MAX.into())?;
        }
        range("MSS", self.mss.unwrap_or(0).into(), 0, SEGMENT_MAX.into())?;
        range("window", self.window.unwrap_or(0).into(), 0, WINDOW_MAX.into())?;
        let name_len = self.congestion.as_ref().map_or(0, String::len) as u64;
        range("congestion", name_len, 0, CONGESTION_LEN_MAX as u64)
    }

    /// As they are sent.
    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        let mut put = |name: &str, value: Value| {
            map.insert(name.to_owned(), value);
        };
        put(if self.protocol == Iperf3Transport::Tcp { "tcp" } else { "udp" }, json!(true));
        put("omit", json!(self.omit_seconds));
        let (seconds, bytes, blocks) = self.length_limit.numbers();
        put("time", json!(seconds));
        put("num", json!(bytes));
        put("blockcount", json!(blocks));
        put("parallel", json!(self.streams));
        put("len", json!(self.length));
        put("pacing_timer", json!(self.pacing_timer.as_ns() / 1_000));
        put("client_version", json!(self.version));
        let truths = [
            ("reverse", self.direction == Iperf3Direction::Reverse),
            ("bidirectional", self.direction == Iperf3Direction::Both),
            ("nodelay", self.no_delay),
        ];
        for (name, _) in truths.into_iter().filter(|(_, is)| *is) {
            put(name, json!(true));
        }
        let numbers = [
            ("bandwidth", self.bitrate.map_or(0, Rate::bits_per_second)),
            ("fqrate", self.pacing.map_or(0, Rate::bits_per_second)),
            ("burst", self.burst.into()),
            ("window", self.window.unwrap_or(0).into()),
            ("MSS", self.mss.unwrap_or(0).into()),
            ("TOS", self.type_of_service.into()),
            ("dont_fragment", self.no_fragments.into()),
            ("get_server_output", self.server_report.into()),
            ("udp_counters_64bit", self.wide_counters.into()),
            ("repeating_payload", self.repeating.into()),
            ("zerocopy", self.zerocopy.into()),
            ("skip_rx_copy", self.skip_copy.into()),
        ];
        for (name, number) in numbers.into_iter().filter(|(_, number)| *number > 0) {
            put(name, json!(number));
        }
        let texts =
            [("congestion", &self.congestion), ("title", &self.title), ("extra_data", &self.extra)];
        for (name, text) in texts {
            if let Some(text) = text {
                put(name, json!(text));
            }
        }
        Value::Object(map)
    }

    /// What a client sent.
    ///
    /// # Errors
    /// Something has the wrong type, is beyond what the protocol allows, or is not done here.
    pub fn of_json(value: &Value) -> Result<Self, ParametersError> {
        let map = value
            .as_object()
            .ok_or_else(|| ParametersError::new("the parameters are not a JSON object"))?;
        let fields = ParameterFields(map);
        let protocol = fields.protocol()?;
        let direction = match (fields.boolean("reverse")?, fields.boolean("bidirectional")?) {
            (false, false) => Iperf3Direction::Forward,
            (true, false) => Iperf3Direction::Reverse,
            (false, true) => Iperf3Direction::Both,
            (true, true) => {
                let why = "'reverse' and 'bidirectional' exclude each other";
                return Err(ParametersError::new(why));
            }
        };
        let extent = match (fields.number("num")?, fields.number("blockcount")?) {
            (bytes @ 1.., _) => Iperf3TestLength::Bytes(bytes),
            (0, blocks @ 1..) => Iperf3TestLength::Blocks(blocks),
            (0, 0) => Iperf3TestLength::Seconds(fields.bounded_u32("time", SECONDS_MAX)?),
        };
        let default = Self::default();
        let length = match (fields.bounded_u32("len", u32::MAX)?, protocol) {
            (0, Iperf3Transport::Tcp) => default.length,
            (0, Iperf3Transport::Udp) => 1460,
            (length, _) => length,
        };
        let positive =
            |name, max| Ok(Some(fields.bounded_u32(name, max)?).filter(|size| *size > 0));
        let parameters = Self {
            protocol,
            direction,
            length_limit: extent,
            omit_seconds: fields.bounded_u32("omit", OMIT_MAX)?,
            streams: fields.bounded_u32("parallel", STREAMS_MAX)?.max(1),
            length,
            bitrate: Rate::from_bits_per_second(fields.number("bandwidth")?),
            burst: fields.bounded_u32("burst", 1_000)?,
            pacing: Rate::from_bits_per_second(fields.number("fqrate")?),
            pacing_timer: Span::from_us(fields.number("pacing_timer")?),
            window: positive("window", WINDOW_MAX)?,
            mss: positive("MSS", SEGMENT_MAX)?,
            type_of_service: u8::try_from(fields.bounded_u32("TOS", 255)?).unwrap_or(u8::MAX),
            no_delay: fields.boolean("nodelay")?,
            no_fragments: fields.boolean("dont_fragment")?,
            congestion: fields.text("congestion")?,
            wide_counters: fields.boolean("udp_counters_64bit")?,
            repeating: fields.boolean("repeating_payload")?,
            zerocopy: fields.boolean("zerocopy")?,
            skip_copy: fields.boolean("skip_rx_copy")?,
            server_report: fields.boolean("get_server_output")?,
            title: fields.text("title")?,
            extra: fields.text("extra_data")?,
            version: fields.text("client_version")?.unwrap_or_default(),
        };
        parameters.check()?;
        Ok(parameters)
    }
}

/// An object's members by their types; one that is absent is nothing, 0 or false.
struct ParameterFields<'a>(&'a Map<String, Value>);

impl ParameterFields<'_> {
    fn protocol(&self) -> Result<Iperf3Transport, ParametersError> {
        let protocol = match (self.boolean("tcp")?, self.boolean("udp")?) {
            (true, _) => Iperf3Transport::Tcp,
            (false, true) => Iperf3Transport::Udp,
            _ if self.boolean("sctp")? => {
                return Err(ParametersError::new(
                    "the parameters ask for SCTP, which is not supported",
                ));
            }
            _ => {
                let why = "the parameters ask for neither TCP nor UDP; nothing else is supported";
                return Err(ParametersError::new(why));
            }
        };
        if self.boolean("mptcp")? {
            let why = "the parameters ask for multipath TCP, which is not supported";
            return Err(ParametersError::new(why));
        }
        Ok(protocol)
    }

    fn boolean(&self, name: &'static str) -> Result<bool, ParametersError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(is)) => Ok(*is),
            Some(Value::Number(_)) => Ok(self.number(name)? > 0),
            Some(other) => Err(wrong(name, "truth", other)),
        }
    }

    fn number(&self, name: &'static str) -> Result<u64, ParametersError> {
        let number = match self.0.get(name) {
            None | Some(Value::Null) => return Ok(0),
            Some(Value::Number(number)) => number,
            Some(other) => return Err(wrong(name, "number", other)),
        };
        let max = u64::MAX >> 1;
        let range = || ParametersError::out_of_range(name, number, 0, max);
        if let Some(whole) = number.as_u64() {
            return if whole <= max { Ok(whole) } else { Err(range()) };
        }
        let real = number.as_f64().filter(|real| (0.0..9e18).contains(real)).ok_or_else(range)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 9e18, and rounded"
        )]
        Ok(real.round() as u64)
    }

    fn bounded_u32(&self, name: &'static str, max: u32) -> Result<u32, ParametersError> {
        let number = self.number(name)?;
        let small = u32::try_from(number).ok().filter(|small| *small <= max);
        small.ok_or_else(|| ParametersError::out_of_range(name, number, 0, max.into()))
    }

    fn text(&self, name: &'static str) -> Result<Option<String>, ParametersError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.len() <= TEXT_MAX => {
                Ok(Some(text.clone()).filter(|text| !text.is_empty()))
            }
            Some(Value::String(text)) => {
                let len = format!("{} bytes long", text.len());
                Err(ParametersError::out_of_range(name, len, 0, TEXT_MAX as u64))
            }
            Some(other) => Err(wrong(name, "text", other)),
        }
    }
}

fn wrong(name: &'static str, wanted: &'static str, found: &Value) -> ParametersError {
    let found = match found {
        Value::Null => "nothing",
        Value::Bool(_) => "a truth",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    ParametersError(format!("'{name}' is {found}, not a {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Iperf3Parameters {
        Iperf3Parameters {
            protocol: Iperf3Transport::Udp,
            direction: Iperf3Direction::Both,
            length_limit: Iperf3TestLength::Bytes(1 << 30),
            omit_seconds: 2,
            streams: 5,
            length: 1_400,
            bitrate: Rate::from_bits_per_second(10_000_000),
            burst: 10,
            pacing: Rate::from_bits_per_second(20_000_000),
            pacing_timer: Span::from_us(250),
            window: Some(1 << 20),
            mss: Some(1_000),
            type_of_service: 0xB8,
            no_delay: true,
            no_fragments: true,
            congestion: Some("reno".to_owned()),
            wide_counters: true,
            repeating: true,
            zerocopy: true,
            skip_copy: true,
            server_report: true,
            title: Some("nightly".to_owned()),
            extra: Some("{}".to_owned()),
            version: "3.21".to_owned(),
        }
    }

    #[test]
    fn parameters_are_read_as_they_are_written() {
        for parameters in [full(), Iperf3Parameters::default()] {
            assert_eq!(Iperf3Parameters::of_json(&parameters.to_json()), Ok(parameters));
        }
    }

    #[test]
    fn the_shortest_parameters_of_old_and_new_clients_are_understood() {
        let new = json!({"tcp": true, "omit": 0, "time": 10, "num": 0, "blockcount": 0,
            "parallel": 1, "len": 131_072, "pacing_timer": 1000, "client_version": "3.16"});
        let version = "3.16".to_owned();
        assert_eq!(
            Iperf3Parameters::of_json(&new),
            Ok(Iperf3Parameters { version, ..Iperf3Parameters::default() })
        );
        let old =
            json!({"udp": 1, "time": 10.0, "len": 1448.0, "bandwidth": 1_048_576.0, "reverse": 1});
        let old = Iperf3Parameters::of_json(&old).unwrap();
        assert_eq!((old.protocol, old.direction), (Iperf3Transport::Udp, Iperf3Direction::Reverse));
        assert_eq!(
            (old.length, old.streams, old.length_limit),
            (1448, 1, Iperf3TestLength::Seconds(10))
        );
    }

    #[test]
    fn what_is_of_the_wrong_type_or_beyond_its_range_is_named() {
        for (value, name) in [
            (json!([]), "object"),
            (json!({"time": 1}), "neither TCP nor UDP"),
            (json!({"sctp": true}), "SCTP"),
            (json!({"tcp": true, "mptcp": true}), "multipath"),
            (json!({"tcp": "yes"}), "'tcp' is a text"),
            (json!({"tcp": true, "time": "10"}), "'time' is a text"),
            (json!({"tcp": true, "time": -1}), "'time' is -1"),
            (json!({"tcp": true, "time": 1e300}), "'time'"),
            (json!({"tcp": true, "num": u64::MAX}), "'num'"),
            (json!({"tcp": true, "parallel": 129}), "'parallel' is 129"),
            (json!({"tcp": true, "len": 1_048_577}), "'len'"),
            (json!({"udp": true, "len": 15}), "'len'"),
            (json!({"tcp": true, "omit": 601}), "'omit'"),
            (json!({"tcp": true, "congestion": 1}), "'congestion'"),
            (json!({"tcp": true, "title": "x".repeat(5000)}), "'title'"),
            (json!({"tcp": true, "reverse": true, "bidirectional": true}), "exclude"),
        ] {
            let error = Iperf3Parameters::of_json(&value).unwrap_err().to_string();
            assert!(error.contains(name), "{value}: {error}");
        }
    }

    #[test]
    fn both_directions_have_the_senders_streams_first() {
        let both = Iperf3Parameters {
            direction: Iperf3Direction::Both,
            streams: 2,
            ..Iperf3Parameters::default()
        };
        assert_eq!(both.client_sends(), [true, true, false, false]);
    }
}
