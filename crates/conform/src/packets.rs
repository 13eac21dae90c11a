//! Packets of a run: made from what the script injects, ICMP errors included, compared with what it expects.
//!
//! Initial sequence numbers, ports and timestamps of the run differ from those of the script: a map translates them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use plumb_base::time::Instant;
use plumb_wire::compose::PacketTemplate;
use plumb_wire::icmp::IcmpMessage;
use plumb_wire::ip::{IpProtocol, TrafficClass};
use plumb_wire::ipv4::Ipv4Packet;
use plumb_wire::ipv6::Ipv6Packet;
use plumb_wire::option::{self, OptionArea};
use plumb_wire::tcp::{TcpFlags, TcpHeader, TcpSegment};

use crate::outcome::ScriptError;
use crate::script::{ClassSpec, IcmpSpec, OptionSpec, PacketSpec, TcpSpec};

/// A segment that the stack sent.
#[derive(Clone, Debug)]
pub struct ObservedSegment {
    /// When.
    pub at: Instant,
    /// From where.
    pub source: SocketAddr,
    /// To where.
    pub destination: SocketAddr,
    /// Traffic class of its packet.
    pub class: TrafficClass,
    /// Time to live of its packet.
    pub hop_limit: u8,
    /// Its header.
    pub header: TcpHeader,
    /// Bytes of payload.
    pub len: u32,
    /// Its packet.
    pub bytes: Vec<u8>,
}

impl ObservedSegment {
    /// Reads a packet.
    ///
    /// # Errors
    /// What is wrong with it: the stack must not send such a packet. `Ok(None)`: it is no TCP segment.
    pub fn parse(at: Instant, bytes: &[u8]) -> Result<Option<Self>, String> {
        let v6 = bytes.first().is_some_and(|octet| octet >> 4 == 6);
        let (source, destination, class, hop_limit, protocol, payload, pseudo): (
            IpAddr,
            IpAddr,
            _,
            _,
            _,
            _,
            _,
        ) = if v6 {
            let packet = Ipv6Packet::parse(bytes).map_err(|error| error.to_string())?;
            let (source, destination) = (packet.source().into(), packet.destination().into());
            let pseudo = packet.pseudo(IpProtocol::TCP);
            let (class, limit) = (packet.traffic_class(), packet.hop_limit());
            (source, destination, class, limit, packet.next_header(), packet.payload(), pseudo)
        } else {
            let packet = Ipv4Packet::parse(bytes)
                .and_then(Ipv4Packet::verify)
                .map_err(|error| error.to_string())?;
            let (source, destination) = (packet.source().into(), packet.destination().into());
            let (class, limit) = (packet.traffic_class(), packet.hop_limit());
            let (protocol, payload) = (packet.protocol(), packet.payload());
            (source, destination, class, limit, protocol, payload, packet.pseudo())
        };
        if protocol != IpProtocol::TCP {
            return Ok(None);
        }
        let segment = TcpSegment::parse(payload)
            .and_then(|segment| segment.verify(pseudo))
            .map_err(|error| error.to_string())?;
        Ok(Some(Self {
            at,
            source: SocketAddr::new(source, segment.source_port()),
            destination: SocketAddr::new(destination, segment.destination_port()),
            class,
            hop_limit,
            header: segment.header(),
            len: u32::try_from(segment.payload().len()).unwrap_or(u32::MAX),
            bytes: bytes.to_vec(),
        }))
    }

    /// Its numbers as the script has them.
    #[must_use]
    pub fn in_script(&self, map: &ConnectionMap) -> Self {
        let flags = self.header.flags;
        let is_syn = flags.contains(TcpFlags::SYN);
        let (local, remote) = (map.local_offset(is_syn), map.remote_offset(is_syn));
        let mut segment = self.clone();
        segment.header.seq = self.header.seq.wrapping_sub(local);
        if flags.contains(TcpFlags::ACK) {
            segment.header.ack = self.header.ack.wrapping_sub(remote);
        }
        segment
    }

    /// Appends `next`, which follows it in the stream, as if both had been one.
    ///
    /// # Errors
    /// Why they cannot have been one.
    pub fn join(&mut self, next: &Self, (total, expected): (u32, u32)) -> Result<(), String> {
        let last = TcpFlags::FIN | TcpFlags::PSH;
        let but_last = |flags: TcpFlags| flags.bits() & !(last | TcpFlags::CWR).bits();
        let (first, second) = (&self.header, &next.header);
        if but_last(first.flags) != but_last(second.flags) || first.ack != second.ack {
            return Err("the segments differ in more than their data".to_owned());
        }
        if second.seq != first.seq.wrapping_add(self.len) {
            return Err("the segments do not follow each other".to_owned());
        }
        if total + next.len > expected {
            return Err(format!("{} bytes came instead of {expected}", total + next.len));
        }
        // As in packetdrill, whether the whole has FIN and PSH is for the last to say.
        self.header.flags =
            first.flags.without(last) | TcpFlags::from_bits(second.flags.bits() & last.bits());
        self.len += next.len;
        Ok(())
    }

    /// As a script would have it.
    pub fn describe(&self, with_options: bool) -> String {
        let header = &self.header;
        let mut flags = format!("{:?}", header.flags);
        if let Some(rest) = flags.strip_suffix("none") {
            flags = format!("{rest}-");
        }
        let end = header.seq.wrapping_add(self.len);
        let mut text = format!("{flags} {}:{end}({})", header.seq, self.len);
        if header.flags.contains(TcpFlags::ACK) {
            text = format!("{text} ack {}", header.ack);
        }
        text = format!("{text} win {}", header.window);
        if with_options && !header.options.is_empty() {
            text = format!("{text} <{}>", describe_options(&read_options(header)));
        }
        text
    }

    /// Compares it, numbers as in the script, with what the script expects.
    ///
    /// # Errors
    /// The first field that differs.
    pub fn compare(&self, packet: &PacketSpec, expected: &TcpSpec) -> Result<(), String> {
        let header = &self.header;
        let differs = |field: &str, expected: &dyn std::fmt::Debug, found: &dyn std::fmt::Debug| {
            Err(format!("{field} is {found:?} instead of {expected:?}"))
        };
        if header.flags != expected.flags {
            return differs("the flags", &expected.flags, &header.flags);
        }
        if self.len != u32::from(expected.len) {
            return differs("the payload", &expected.len, &self.len);
        }
        if header.seq != expected.seq {
            return differs("the sequence number", &expected.seq, &header.seq);
        }
        let ack = if header.flags.contains(TcpFlags::ACK) { header.ack } else { expected.ack };
        if ack != expected.ack {
            return differs("the acknowledgement number", &expected.ack, &ack);
        }
        if let Some(window) = expected.window
            && window != header.window
        {
            return differs("the window", &window, &header.window);
        }
        if header.urgent != expected.urgent {
            return differs("the urgent pointer", &expected.urgent, &header.urgent);
        }
        self.compare_ip(packet)
    }

    fn compare_ip(&self, packet: &PacketSpec) -> Result<(), String> {
        let found = self.class.0;
        let (expected, agrees) = match packet.class {
            None => (String::new(), true),
            Some(ClassSpec::Tos(class)) => (format!("{class:#x}"), found == class),
            Some(ClassSpec::Ecn(ecn)) => (format!("ECN {ecn}"), found & 3 == ecn),
            Some(ClassSpec::EctAny) => ("ECT".to_owned(), matches!(found & 3, 1 | 2)),
        };
        if !agrees {
            return Err(format!("the traffic class is {found:#x} instead of {expected}"));
        }
        match packet.hop_limit {
            Some(limit) if limit != self.hop_limit => {
                Err(format!("the time to live is {} instead of {limit}", self.hop_limit))
            }
            _ => Ok(()),
        }
    }
}

/// The options of a segment, as far as a script can name them.
pub fn read_options(header: &TcpHeader) -> Vec<OptionSpec> {
    let word = |bytes: &[u8]| bytes.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
    let mut options = Vec::new();
    let area = header.options.as_bytes();
    let mut read = 0;
    for item in option::items(area).map_while(Result::ok) {
        read += item.len();
        options.push(match *item {
            [1] => OptionSpec::Nop,
            [2, 4, high, low] => OptionSpec::Mss(u16::from_be_bytes([high, low])),
            [3, 3, shift] => OptionSpec::WindowScale(shift),
            [4, 2] => OptionSpec::SackPermitted,
            [5, _, ref blocks @ ..] => {
                let pair = |block: &[u8; 8]| (word(&block[..4]), word(&block[4..]));
                OptionSpec::Sack(blocks.as_chunks::<8>().0.iter().map(pair).collect())
            }
            [8, 10, ref times @ ..] => {
                OptionSpec::Timestamps { value: word(&times[..4]), echo: word(&times[4..]) }
            }
            _ => continue,
        });
    }
    // The end of the options ends what `items` gives: the octets behind it are as many ends.
    options.extend(std::iter::repeat_n(OptionSpec::Eol, area.len().saturating_sub(read)));
    options
}

/// Options as a script would have them.
pub fn describe_options(options: &[OptionSpec]) -> String {
    let texts: Vec<String> = options
        .iter()
        .map(|option| match option {
            OptionSpec::Eol => "eol".to_owned(),
            OptionSpec::Nop => "nop".to_owned(),
            OptionSpec::Mss(mss) => format!("mss {mss}"),
            OptionSpec::WindowScale(shift) => format!("wscale {shift}"),
            OptionSpec::SackPermitted => "sackOK".to_owned(),
            OptionSpec::Sack(blocks) => {
                let blocks: Vec<String> =
                    blocks.iter().map(|(left, right)| format!("{left}:{right}")).collect();
                format!("sack {}", blocks.join(" "))
            }
            OptionSpec::Timestamps { value, echo } => format!("TS val {value} ecr {echo}"),
        })
        .collect();
    texts.join(",")
}

/// The bytes of options, whose numbers are those of the run.
fn write_options(options: &[OptionSpec]) -> Result<OptionArea, String> {
    let mut bytes = Vec::new();
    for option in options {
        match option {
            OptionSpec::Eol => bytes.push(0),
            OptionSpec::Nop => bytes.push(1),
            OptionSpec::Mss(mss) => {
                bytes.extend([2, 4]);
                bytes.extend(mss.to_be_bytes());
            }
            OptionSpec::WindowScale(shift) => bytes.extend([3, 3, *shift]),
            OptionSpec::SackPermitted => bytes.extend([4, 2]),
            OptionSpec::Sack(blocks) => {
                bytes.extend([5, u8::try_from(2 + 8 * blocks.len()).unwrap_or(u8::MAX)]);
                for (left, right) in blocks {
                    bytes.extend(left.to_be_bytes());
                    bytes.extend(right.to_be_bytes());
                }
            }
            OptionSpec::Timestamps { value, echo } => {
                bytes.extend([8, 10]);
                bytes.extend(value.to_be_bytes());
                bytes.extend(echo.to_be_bytes());
            }
        }
    }
    if !bytes.len().is_multiple_of(4) {
        return Err(format!(
            "the options have {} bytes, which is not a multiple of 4",
            bytes.len()
        ));
    }
    OptionArea::new(&bytes).map_err(|error| error.to_string())
}

/// The packet that the script injects.
///
/// # Errors
/// Why it cannot be built.
pub fn inbound(
    packet: &PacketSpec,
    segment: &TcpSpec,
    map: &ConnectionMap,
    infers_echoes: bool,
) -> Result<Vec<u8>, String> {
    let is_syn = segment.flags.contains(TcpFlags::SYN);
    let has_ack = segment.flags.contains(TcpFlags::ACK);
    let local = map.local_offset(is_syn);
    let mut options = segment.options.clone().unwrap_or_default();
    for option in &mut options {
        match option {
            OptionSpec::Sack(blocks) => {
                for (left, right) in blocks {
                    (*left, *right) = (left.wrapping_add(local), right.wrapping_add(local));
                }
            }
            OptionSpec::Timestamps { echo, .. } if has_ack => {
                *echo = map.echo(*echo, infers_echoes).ok_or_else(|| {
                    format!("no segment with the timestamp {echo}, which this echoes, was expected")
                })?;
            }
            _ => {}
        }
    }
    let (source, destination) = packet.ports.unwrap_or((map.remote.port(), map.local.port()));
    let remote = if segment.absolute { 0 } else { map.remote_offset(is_syn) };
    let header = TcpHeader {
        source_port: source,
        destination_port: destination,
        seq: segment.seq.wrapping_add(remote),
        ack: if has_ack { segment.ack.wrapping_add(local) } else { segment.ack },
        flags: segment.flags,
        window: segment.window.unwrap_or(0),
        checksum: 0,
        urgent: segment.urgent,
        options: write_options(&options)?,
    };
    let mut template = PacketTemplate::new(map.remote.ip(), map.local.ip());
    template.traffic_class = match packet.class {
        None => TrafficClass(0),
        Some(ClassSpec::Ecn(bits) | ClassSpec::Tos(bits)) => TrafficClass(bits),
        Some(ClassSpec::EctAny) => TrafficClass(2),
    };
    template.hop_limit = packet.hop_limit.unwrap_or(64);
    Ok(template.tcp(header, &vec![0; segment.len.into()]))
}

/// A connection of the script, and what its numbers are in the run.
#[derive(Clone, Debug)]
pub struct ConnectionMap {
    /// The stack's end.
    pub local: SocketAddr,
    /// The script's end.
    pub remote: SocketAddr,
    /// The stack's initial sequence number, in the script and in the run.
    pub local_isn: (u32, u32),
    /// The script's, which is the same in both.
    pub remote_isn: u32,
    /// Whether a SYN has told [`ConnectionMap::remote_isn`].
    pub is_remote_known: bool,
    timestamps: BTreeMap<u32, u32>,
    first_timestamp: Option<(u32, u32)>,
}

impl ConnectionMap {
    /// Between these ends, with initial numbers of 0 as yet.
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            local,
            remote,
            local_isn: (0, 0),
            remote_isn: 0,
            is_remote_known: false,
            timestamps: BTreeMap::new(),
            first_timestamp: None,
        }
    }

    /// What to add to the stack's numbers in the script for those of the run. In a SYN they are not relative.
    pub fn local_offset(&self, is_syn: bool) -> u32 {
        let (script, run) = self.local_isn;
        if is_syn { run.wrapping_sub(script) } else { run }
    }

    /// The same for the script's own numbers.
    pub fn remote_offset(&self, is_syn: bool) -> u32 {
        if is_syn { 0 } else { self.remote_isn }
    }

    /// The stack sent the timestamp `run` where the script has `script`; what the script would have if its clock ran as
    /// the stack's does.
    pub fn on_timestamp(&mut self, script: u32, run: u32) -> u32 {
        self.timestamps.insert(script, run);
        let (first_script, first_run) = *self.first_timestamp.get_or_insert((script, run));
        first_script.wrapping_add(run.wrapping_sub(first_run))
    }

    /// The timestamp of the run that the script's echo means; with `infers`, also one that was never seen.
    pub fn echo(&self, script: u32, infers: bool) -> Option<u32> {
        let inferred = self.first_timestamp.filter(|_| infers).map(|(first_script, first_run)| {
            script.wrapping_sub(first_script).wrapping_add(first_run)
        });
        self.timestamps.get(&script).copied().or(inferred)
    }
}

/// Codes of "destination unreachable" of ICMP for IPv4 (RFC 792, RFC 1122 §3.2.2.1, RFC 1812 §5.2.7.1).
const UNREACHABLE_V4: [&str; 16] = [
    "net_unreachable",
    "host_unreachable",
    "protocol_unreachable",
    "port_unreachable",
    "frag_needed",
    "source_route_failed",
    "net_unknown",
    "host_unknown",
    "source_host_isolated",
    "net_prohibited",
    "host_prohibited",
    "net_unreachable_for_tos",
    "host_unreachable_for_tos",
    "packet_filtered",
    "precedence_violation",
    "precedence_cutoff",
];

/// Codes of "destination unreachable" of ICMPv6 (RFC 4443 §3.1).
const UNREACHABLE_V6: [&str; 5] =
    ["no_route", "admin_prohibited", "not_neighbour", "address_unreachable", "port_unreachable"];

/// Codes of "time exceeded" of both.
const TIME_EXCEEDED: [&str; 2] = ["exceeded_in_transit", "exceeded_frag_time"];

/// Codes of "parameter problem" of ICMPv6 (RFC 4443 §3.4).
const PARAMETER_V6: [&str; 3] = ["header_field", "unknown_next_header", "unknown_option"];

/// The packet that the script injects.
///
/// # Errors
/// [`ScriptError::Unsupported`] for a type or a code that is unknown.
pub fn inbound_icmp(spec: &IcmpSpec, map: &ConnectionMap) -> Result<Vec<u8>, ScriptError> {
    let v6 = map.local.is_ipv6();
    let message = icmp_message(spec, v6).ok_or_else(|| {
        let code = spec.code.as_deref().unwrap_or_default();
        ScriptError::Unsupported { at: spec.at, what: format!("ICMP {} {code}", spec.kind) }
    })?;
    let (seq, len) = spec.quoted.unwrap_or((0, 0));
    let header = TcpHeader {
        source_port: map.local.port(),
        destination_port: map.remote.port(),
        seq: seq.wrapping_add(map.local_offset(false)),
        flags: TcpFlags::ACK,
        ..TcpHeader::default()
    };
    let quoted =
        PacketTemplate::new(map.local.ip(), map.remote.ip()).tcp(header, &vec![0; len.into()]);
    // As much as RFC 792 asks for would not have the flags: what routers quote today (RFC 1812 §4.3.2.3).
    let most = quoted.len().min(if v6 { 1_232 } else { 548 });
    let template = PacketTemplate::new(map.remote.ip(), map.local.ip());
    Ok(template.icmp(message, &quoted[..most]))
}

fn icmp_message(spec: &IcmpSpec, v6: bool) -> Option<IcmpMessage> {
    let code_of = |names: &[&str]| -> Option<u8> {
        let Some(code) = spec.code.as_deref() else { return Some(0) };
        let number = code.strip_prefix("code_").and_then(|number| number.parse().ok());
        let place = names.iter().position(|name| *name == code);
        number.or(place.and_then(|place| u8::try_from(place).ok()))
    };
    let mtu = spec.mtu.unwrap_or(0);
    Some(match (spec.kind.as_str(), v6) {
        ("unreachable", false) => match code_of(&UNREACHABLE_V4)? {
            4 => IcmpMessage::PacketTooBig { mtu },
            code => IcmpMessage::Unreachable { code },
        },
        ("unreachable", true) => IcmpMessage::Unreachable { code: code_of(&UNREACHABLE_V6)? },
        ("packet_too_big", true) => IcmpMessage::PacketTooBig { mtu },
        ("time_exceeded", _) => IcmpMessage::TimeExceeded { code: code_of(&TIME_EXCEEDED)? },
        ("parameter_problem", _) => {
            let names: &[&str] = if v6 { &PARAMETER_V6 } else { &[] };
            IcmpMessage::ParameterProblem { code: code_of(names)?, pointer: 0 }
        }
        ("source_quench", false) => {
            IcmpMessage::Other { kind: 4, code: code_of(&[])?, rest: [0; 4] }
        }
        ("redirect", false) => IcmpMessage::Other { kind: 5, code: code_of(&[])?, rest: [0; 4] },
        _ => return None,
    })
}
