//! Configuration of connections: bounds, policies, what is visible from outside, and the defects of the experiments.

use plumb_base::time::Span;

use super::congestion::CongestionChoice;

/// Configuration of a connection or of all that a listener accepts.
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// What is visible from outside and differs between systems.
    pub personality: Personality,
    /// Bounds of the send buffer.
    pub send_buffer: BufferLimits,
    /// Bounds of the receive buffer.
    pub receive_buffer: BufferLimits,
    /// Congestion control.
    pub congestion: CongestionChoice,
    /// HyStart++ in slow start (RFC 9406), where the congestion control has slow start.
    pub hystart: bool,
    /// Whether segments are paced where the congestion control itself does not ask for it.
    pub pacing: bool,
    /// Timestamps (RFC 7323) are offered and accepted.
    pub timestamps: bool,
    /// Window scaling (RFC 7323) is offered and accepted.
    pub window_scaling: bool,
    /// Selective acknowledgements (RFC 2018) are offered and accepted.
    pub sack: bool,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: EcnPolicy,
    /// Small segments wait for acknowledgements (RFC 9293 §3.7.4).
    pub nagle: bool,
    /// Largest payload of a segment, where the path allows more.
    pub mss_max: Option<u16>,
    /// Most segments that are made at once, whatever the device takes.
    pub super_segment_max: u16,
    /// Whether a path that loses only large segments is probed (RFC 4821).
    pub mtu_probing: bool,
    /// Keep-alive: off without.
    pub keep_alive: Option<KeepAlive>,
    /// How long data or a SYN may remain unacknowledged (RFC 9293 §3.8.3); `None`: the personality's retries decide.
    pub user_timeout: Option<Span>,
    /// How long a connection that was closed here waits in FIN-WAIT-2 for the peer's FIN.
    pub fin_wait_2: Span,
    /// Duration of TIME-WAIT.
    pub time_wait: Span,
    /// How payload is copied and summed.
    pub checksum_pass: ChecksumPass,
    /// Whether the bytes of the stream are kept. Where nobody looks at them, as in a simulation, they need not be: buffers then take no
    /// memory, and segments are as long as before with whatever their frames held. Such a connection sends by `tcp_send_any` and reads by
    /// `tcp_discard`: other calls would find or leave no bytes.
    pub keeps_content: bool,
    /// Whether a listener whose half-open connections are too many answers with SYN cookies; without, it drops further SYNs.
    pub syn_cookies: bool,
    /// What its packets have in their IP headers.
    pub marks: IpMarks,
    /// Defects, for experiments: none.
    pub defects: TcpDefects,
}

impl Default for TcpConfig {
    /// As Linux behaves, with its buffer limits; CUBIC with HyStart++.
    fn default() -> Self {
        Self {
            personality: Personality::linux(),
            send_buffer: BufferLimits { initial: 65_536, max: 4_194_304 },
            receive_buffer: BufferLimits { initial: 65_536, max: 6_291_456 },
            congestion: CongestionChoice::Cubic,
            hystart: true,
            pacing: false,
            timestamps: true,
            window_scaling: true,
            sack: true,
            ecn: EcnPolicy::Accept,
            nagle: true,
            mss_max: None,
            super_segment_max: u16::MAX,
            mtu_probing: true,
            keep_alive: None,
            user_timeout: None,
            fin_wait_2: Span::from_secs(60),
            time_wait: Span::from_secs(60),
            checksum_pass: ChecksumPass::Fused,
            keeps_content: true,
            syn_cookies: true,
            marks: IpMarks::default(),
            defects: TcpDefects::default(),
        }
    }
}

/// What an application chooses of the IP header (RFC 9293 §3.9.2, MUST-48 and MUST-49).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpMarks {
    /// Time to live, or hop limit.
    pub hop_limit: u8,
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
}

impl IpMarks {
    /// 64 hops, the default class.
    pub const DEFAULT: Self = Self { hop_limit: 64, dscp: 0 };
}

impl Default for IpMarks {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Bounds of a buffer, in bytes: it begins with `initial` and grows by auto-tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferLimits {
    /// At first.
    pub initial: u32,
    /// At most.
    pub max: u32,
}

impl BufferLimits {
    /// A buffer that does not grow.
    pub const fn fixed(bytes: u32) -> Self {
        Self { initial: bytes, max: bytes }
    }
}

/// What is done about explicit congestion notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnPolicy {
    /// Neither offered nor accepted.
    Off,
    /// Accepted where the peer offers it (Linux's default).
    Accept,
    /// Offered and accepted.
    Offer,
}

/// Probes of a connection on which nothing arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first.
    pub idle: Span,
    /// Between two.
    pub interval: Span,
    /// Unanswered ones after which the connection is given up.
    pub probes: u32,
}

impl Default for KeepAlive {
    /// Two hours, 75 s, nine probes, as in Linux.
    fn default() -> Self {
        Self { idle: Span::from_secs(7_200), interval: Span::from_secs(75), probes: 9 }
    }
}

/// Whether the checksum is computed while payload is copied, or in a pass of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumPass {
    /// One pass over the bytes.
    Fused,
    /// Copied first, then summed.
    Separate,
}

/// What is visible from outside and differs between systems.
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Personality {
    /// Order of the options of a SYN.
    pub syn_options: OptionOrder,
    /// Segments of the initial window (RFC 6928: 10).
    pub initial_window: u16,
    /// Retransmission timeout before the first measurement.
    pub rto_initial: Span,
    /// Least retransmission timeout.
    pub rto_min: Span,
    /// Largest retransmission timeout.
    pub rto_max: Span,
    /// What `rto_min` bounds.
    pub rto_floor: RtoFloor,
    /// Times that a SYN is retransmitted.
    pub syn_retries: u8,
    /// Times that a SYN-ACK is retransmitted.
    pub syn_ack_retries: u8,
    /// Times that a segment is retransmitted by the timer before the connection is given up.
    pub retries: u8,
    /// Delayed acknowledgements.
    pub delayed_ack: DelayedAck,
    /// How the right edge of our window advances.
    pub window_edge: WindowEdge,
    /// Challenge ACKs a second, of one host (RFC 5961 §7).
    pub challenge_acks: u32,
    /// Whether a SYN that has a FIN opens a connection (RFC 9293 §3.10.7.2), or is discarded as in Linux.
    pub syn_fin: bool,
    /// Whether acknowledgements repeat our FIN until it is acknowledged, as in FreeBSD; RFC 9293 §3.10.7.4 has them behind it.
    pub repeats_fin: bool,
    /// Whether a super-segment has PSH even if more is queued, as in Linux: the receiver is not to hold back what it joins.
    pub pushes_super_segments: bool,
    /// Whether a RST that is in the window but not at its left edge closes the connection, as before RFC 5961.
    pub insecure_rst: bool,
    /// Whether a SYN in the window closes the connection, as before RFC 5961.
    pub insecure_syn: bool,
}

/// What the least retransmission timeout bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtoFloor {
    /// The timeout (RFC 6298 §2.4).
    Total,
    /// What it is above the smoothed round-trip time, as in Linux.
    Deviation,
}

/// How the right edge of our window advances with what is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowEdge {
    /// By a segment or half of the buffer at least (RFC 9293 §3.8.6.2.2).
    Steps,
    /// With every acknowledgement by whatever the buffer has room for, as in FreeBSD; and all that it has room for is accepted, though
    /// without a scale 16 bits offer less.
    Exact,
}

/// Order of the options of a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionOrder {
    /// MSS, SACK permitted, timestamps, NOP, window scale.
    Linux,
    /// MSS, NOP, window scale, SACK permitted, timestamps.
    FreeBsd,
}

/// When acknowledgements of data are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayedAck {
    /// Least delay; the delay adapts between both where they differ.
    pub min: Span,
    /// Largest delay, at most 500 ms (RFC 9293 §3.8.6.3). 0: every segment is acknowledged at once.
    pub max: Span,
    /// Full-sized segments after which one is sent at once (RFC 5681 §4.2: 2).
    pub segments: u8,
    /// Whether segments count that are not full-sized, as in FreeBSD.
    pub counts_small: bool,
    /// Segments at the start of a connection that are acknowledged at once, so that slow start is not held up.
    pub quick: u8,
}

impl Personality {
    /// As Linux 6.x.
    pub const fn linux() -> Self {
        Self {
            syn_options: OptionOrder::Linux,
            initial_window: 10,
            rto_initial: Span::from_secs(1),
            rto_min: Span::from_ms(200),
            rto_max: Span::from_secs(120),
            rto_floor: RtoFloor::Deviation,
            syn_retries: 6,
            syn_ack_retries: 5,
            retries: 15,
            delayed_ack: DelayedAck {
                min: Span::from_ms(40),
                max: Span::from_ms(200),
                segments: 2,
                counts_small: false,
                quick: 16,
            },
            window_edge: WindowEdge::Steps,
            syn_fin: false,
            repeats_fin: false,
            pushes_super_segments: true,
            challenge_acks: 1_000,
            insecure_rst: false,
            insecure_syn: false,
        }
    }

    /// As FreeBSD 14.
    pub const fn freebsd() -> Self {
        Self {
            syn_options: OptionOrder::FreeBsd,
            rto_min: Span::from_ms(230),
            rto_max: Span::from_secs(64),
            rto_floor: RtoFloor::Total,
            window_edge: WindowEdge::Exact,
            syn_fin: true,
            repeats_fin: true,
            pushes_super_segments: false,
            syn_retries: 3,
            syn_ack_retries: 3,
            retries: 12,
            delayed_ack: DelayedAck {
                min: Span::from_ms(40),
                max: Span::from_ms(40),
                segments: 2,
                counts_small: true,
                quick: 0,
            },
            ..Self::linux()
        }
    }

    /// As the RFCs say, with no choice of an implementation's own.
    pub const fn plain() -> Self {
        Self {
            rto_min: Span::from_secs(1),
            rto_max: Span::from_secs(60),
            rto_floor: RtoFloor::Total,
            syn_fin: true,
            pushes_super_segments: false,
            delayed_ack: DelayedAck {
                min: Span::from_ms(500),
                max: Span::from_ms(500),
                segments: 2,
                counts_small: false,
                quick: 0,
            },
            ..Self::linux()
        }
    }
}

/// Defects that implementations had, each switched on by itself (experiment `stack.errors`).
#[expect(clippy::struct_excessive_bools, reason = "each is a defect of its own")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpDefects {
    /// The retransmission timeout is always this long, neither measured nor backed off.
    pub fixed_rto: Option<Span>,
    /// A timeout retransmits all that is unacknowledged, whatever was received (go-back-N).
    pub retransmit_all: bool,
    /// Out-of-order segments are discarded.
    pub discard_out_of_order: bool,
    /// Retransmissions are measured as if they were originals (no Karn's rule).
    pub measure_retransmissions: bool,
    /// Every opening of the window is announced, and every usable part of it used, however small (silly window).
    pub silly_window: bool,
    /// Loss is noticed by timeouts only.
    pub timeout_only: bool,
    /// Every segment is acknowledged twice.
    pub duplicate_acks: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    // MUST-25, MUST-28.
    #[test]
    fn keep_alive_is_off_and_waits_two_hours_where_it_is_on() {
        assert_eq!(TcpConfig::default().keep_alive, None);
        assert!(KeepAlive::default().idle >= Span::from_secs(2 * 3_600));
    }
}
