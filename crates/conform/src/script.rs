//! A script as it is written: options, and events in their order.

use plumb_base::time::Span;
use plumb_wire::tcp::TcpFlags;

use crate::code::CodeStatement;
use crate::outcome::ScriptPosition;

/// A parsed script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedScript {
    /// `--name=value` lines.
    pub options: Vec<ScriptOption>,
    /// Commands without a time: before the first event, and after the last.
    pub setup: Vec<(ScriptPosition, String)>,
    /// What happens, in order.
    pub events: Vec<ScriptEvent>,
}

/// An option at the top of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptOption {
    /// Where it is.
    pub at: ScriptPosition,
    /// Its name, without dashes.
    pub name: String,
    /// What follows the equals sign.
    pub value: String,
}

/// Something that happens, or that the script expects to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptEvent {
    /// Where its time is.
    pub at: ScriptPosition,
    /// When.
    pub time: EventTime,
    /// What.
    pub action: ScriptAction,
}

/// When an event happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventTime {
    /// This long after the script's beginning.
    Absolute(Span),
    /// This long after the event before it.
    Relative(Span),
    /// Between two moments, as [`EventTime::Absolute`].
    AbsoluteRange(Span, Span),
    /// Between two moments, as [`EventTime::Relative`].
    RelativeRange(Span, Span),
    /// At any moment.
    Any,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptAction {
    /// A packet that is injected.
    Inbound(PacketSpec),
    /// A packet that is expected.
    Outbound(PacketSpec),
    /// A system call.
    Call(SystemCall),
    /// A shell command.
    Command(String),
    /// Assertions about `tcp_info`.
    Code(Vec<CodeStatement>),
}

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketSpec {
    /// What is said about its traffic class, if anything is.
    pub class: Option<ClassSpec>,
    /// Time to live, if it is given.
    pub hop_limit: Option<u8>,
    /// Source and destination port, if they are not those of the connection.
    pub ports: Option<(u16, u16)>,
    /// What it carries.
    pub body: PacketBody,
}

/// What is said about a packet's traffic class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassSpec {
    /// The two bits of ECN.
    Ecn(u8),
    /// ECT(0) or ECT(1).
    EctAny,
    /// All eight bits.
    Tos(u8),
}

/// What a packet carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketBody {
    /// A TCP segment.
    Tcp(TcpSpec),
    /// An ICMP error about a segment.
    Icmp(IcmpSpec),
}

/// A TCP segment, its numbers relative to the initial ones but in a SYN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpSpec {
    /// Control bits.
    pub flags: TcpFlags,
    /// Sequence number.
    pub seq: u32,
    /// Bytes of payload.
    pub len: u16,
    /// `!`: the sequence number is not relative to the initial one.
    pub absolute: bool,
    /// Acknowledgement number.
    pub ack: u32,
    /// Window as it is in the header; `None`: it is not checked.
    pub window: Option<u16>,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options; `None`: they are not checked.
    pub options: Option<Vec<OptionSpec>>,
}

/// A TCP option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionSpec {
    /// End of options.
    Eol,
    /// Padding.
    Nop,
    /// Maximum segment size.
    Mss(u16),
    /// Shift of the window.
    WindowScale(u8),
    /// SACK permitted.
    SackPermitted,
    /// SACK blocks.
    Sack(Vec<(u32, u32)>),
    /// Timestamps.
    Timestamps {
        /// The sender's clock.
        value: u32,
        /// Echo of the receiver's.
        echo: u32,
    },
}

/// An ICMP error about a TCP segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IcmpSpec {
    /// Where its type is.
    pub at: ScriptPosition,
    /// Name of its type.
    pub kind: String,
    /// Name of its code.
    pub code: Option<String>,
    /// MTU of a packet that is too big.
    pub mtu: Option<u32>,
    /// Sequence number and payload of the segment that is quoted.
    pub quoted: Option<(u32, u16)>,
}

/// A system call, its arguments and what is expected of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemCall {
    /// Where its name is.
    pub at: ScriptPosition,
    /// Its name.
    pub name: String,
    /// When it returns, if it blocks: relative to what its event's time is relative to.
    pub end: Option<Span>,
    /// Its arguments.
    pub arguments: Vec<CallValue>,
    /// What it returns.
    pub result: CallValue,
    /// Name of the error, if it fails.
    pub errno: Option<String>,
}

/// An argument of a system call, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallValue {
    /// `...`: whatever it is.
    Any,
    /// A number.
    Integer(i64),
    /// A constant's name.
    Word(String),
    /// A string.
    Text(String),
    /// `[…]`.
    List(Vec<Self>),
    /// `{…}`.
    Fields(Vec<Self>),
    /// `a | b`.
    Or(Vec<Self>),
    /// `name = value`.
    Named(String, Box<Self>),
    /// `name(…)`.
    Function(String, Vec<Self>),
}
