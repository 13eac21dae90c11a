//! A connection: its two halves, its state, how it is made and configured.

use std::net::SocketAddr;
use std::sync::Arc;

use plumb_base::time::{Instant, Span};
use thiserror::Error;

use super::config::{IpMarks, TcpConfig};
use super::congestion::{CongestionState, CongestionWindow};
use super::delayed_ack::AckSchedule;
use super::delivery_rate::DeliveryRate;
use super::handshake::{Handshake, SynOffer, TimestampClock, peer_mss};
use super::info::SegmentTrace;
use super::mtu::SegmentSize;
use super::pacing::SegmentPacer;
use super::receiver::{Receiver, ReceiverOptions};
use super::recovery::LossRecovery;
use super::ring::SeqRing;
use super::rtt::RttEstimator;
use super::sender::{Sender, SenderCounts, SenderOptions};
use super::sent::SentQueue;
use super::seq::SeqNum;
use super::socket::TcpState;
use super::stream::WriteEnds;
use super::time_wait::TimeWaitState;
use super::window::SendWindow;
use crate::context::DeliveryFailureKind;
use crate::neighbor::DELAY;

/// Bytes of the timestamp option with its padding.
const TIMESTAMP_LEN: u16 = 12;

/// The ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TcpEnds {
    /// Ours.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
}

/// What the path carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLimits {
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// Most payload of one packet that is handed over; 0: no more than one segment.
    pub super_segment: u32,
}

/// Why a connection ended, or a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TcpSocketError {
    /// The peer reset it.
    #[error("the connection was reset by the peer")]
    Reset,
    /// The peer refused it.
    #[error("the connection was refused: nothing listens there")]
    Refused,
    /// The peer did not answer for too long.
    #[error("the connection timed out: the peer does not answer")]
    TimedOut,
    /// The network reported that the peer cannot be reached.
    #[error("the peer cannot be reached: {0:?}")]
    Unreachable(DeliveryFailureKind),
    /// The sending side has been shut down.
    #[error("the connection is shut down for sending")]
    Shutdown,
    /// There is no connection.
    #[error("there is no such connection: it was closed")]
    Closed,
}

/// What both ends agreed to use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AgreedOptions {
    pub timestamps: bool,
    pub window_scale: Option<(u8, u8)>,
}

/// A connection. Pure: it takes segments and the time, and gives segments and its next deadline.
#[expect(clippy::struct_excessive_bools, reason = "each is a condition of its own")]
#[derive(Debug)]
pub struct Connection {
    pub(super) ends: TcpEnds,
    pub(super) config: Arc<TcpConfig>,
    pub(super) state: TcpState,
    pub(super) error: Option<TcpSocketError>,
    /// What the network reported last without ending it, since the peer acknowledged something new.
    pub(super) soft_error: Option<DeliveryFailureKind>,
    pub(super) clock: TimestampClock,
    pub(super) agreed: AgreedOptions,
    pub(super) path: PathLimits,
    pub(super) tx: Sender,
    pub(super) rx: Receiver,
    pub(super) timers: ConnectionTimers,
    /// Something may be to be sent.
    pub(super) is_ready: bool,
    /// The application has forgotten the connection.
    pub(super) is_abandoned: bool,
    /// A RST is due, with these sequence and acknowledgement numbers.
    pub(super) reset: Option<(SeqNum, Option<SeqNum>)>,
    /// A segment before the window that makes the peer answer is due.
    pub(super) solicit: bool,
    /// The acknowledgement that is due is a challenge.
    pub(super) is_challenge: bool,
    /// Acknowledgements still to be repeated (`TcpDefects::duplicate_acks`).
    pub(super) repeats: u8,
    /// The part of the configuration that every segment needs.
    pub(super) marks: IpMarks,
    pub(super) pushes_super_segments: bool,
    pub(super) trace: Option<Box<SegmentTrace>>,
}

/// Timers beside the sender's and that of delayed acknowledgements.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionTimers {
    /// Keep-alive.
    pub keep_alive: Option<Instant>,
    /// End of FIN-WAIT-2 without the application, or of TIME-WAIT.
    pub linger: Option<Instant>,
    /// Nothing leaves before it.
    pub paced_until: Option<Instant>,
    /// When `snd_una` advanced last, or what is unacknowledged was sent first.
    pub progress: Instant,
    /// When the peer acknowledged something new last.
    pub acknowledged: Option<Instant>,
    /// When something arrived last.
    pub heard: Instant,
    /// Probes of a silent or closed peer that were not answered.
    pub unanswered: u32,
    /// Retransmissions reached R1, and nobody was told yet.
    pub is_doubtful: bool,
}

impl ConnectionTimers {
    fn new(now: Instant) -> Self {
        Self {
            keep_alive: None,
            linger: None,
            paced_until: None,
            progress: now,
            acknowledged: None,
            heard: now,
            unanswered: 0,
            is_doubtful: false,
        }
    }
}

impl Connection {
    /// Opens a connection: a SYN is ready to be sent.
    pub fn connect(
        now: Instant,
        ends: TcpEnds,
        iss: u32,
        clock: TimestampClock,
        config: Arc<TcpConfig>,
        path: PathLimits,
    ) -> Self {
        let unknown = Handshake {
            iss,
            irs: 0,
            peer_mss: peer_mss(None, ends.local.is_ipv6()),
            window_scale: None,
            sack: config.sack,
            timestamps: None,
            clock,
            ecn: false,
            window: 0,
            rtt: None,
            advertised: 0,
        };
        let mut connection = Self::new(now, ends, &unknown, config, path);
        connection.state = TcpState::SynSent;
        connection.is_ready = true;
        connection
    }

    /// A connection that a listener accepts: the handshake is done, but for the segment that completed it, which is to be handed to
    /// [`Connection::handle_segment`].
    pub fn accepted(
        now: Instant,
        ends: TcpEnds,
        handshake: &Handshake,
        config: Arc<TcpConfig>,
        path: PathLimits,
    ) -> Self {
        let mut connection = Self::new(now, ends, handshake, config, path);
        connection.tx.una += 1;
        connection.tx.nxt = connection.tx.una;
        connection.on_established(now, handshake);
        connection
    }

    fn new(
        now: Instant,
        ends: TcpEnds,
        handshake: &Handshake,
        config: Arc<TcpConfig>,
        path: PathLimits,
    ) -> Self {
        let iss = SeqNum::initial(handshake.iss);
        let size =
            segment_size(&config, &ends, path, handshake.peer_mss, handshake.timestamps.is_some());
        let window = initial_window(&config, size.payload());
        let pacer = SegmentPacer::new(size.payload().into());
        let algorithm = config.congestion.build(config.hystart, handshake.iss.into());
        let defects = &config.defects;
        let tx = Sender {
            iss,
            una: iss,
            nxt: iss,
            buffer: SeqRing::new(iss + 1, config.send_buffer.initial, config.keeps_content),
            end: iss + 1,
            is_closed: false,
            writes: WriteEnds::default(),
            window: SendWindow::new(0, 0, (SeqNum::default(), iss + 1)),
            size,
            queue: SentQueue::default(),
            congestion: CongestionState::new(algorithm, window, iss, now),
            recovery: LossRecovery::new(iss),
            rtt: RttEstimator::new(&config.personality, defects.fixed_rto),
            rate: DeliveryRate::new(),
            pacer,
            options: sender_options(&config, handshake),
            small_end: iss,
            timer: None,
            rto_base: now,
            last_sent: now,
            probe_window: false,
            probe_tail: false,
            announce_reduction: false,
            counts: SenderCounts::default(),
        };
        let rx = receiver(now, &config, handshake);
        Self {
            ends,
            marks: config.marks,
            pushes_super_segments: config.personality.pushes_super_segments,
            config,
            state: TcpState::Established,
            error: None,
            soft_error: None,
            clock: handshake.clock,
            agreed: AgreedOptions::default(),
            path,
            tx,
            rx,
            timers: ConnectionTimers::new(now),
            is_ready: false,
            is_abandoned: false,
            reset: None,
            solicit: false,
            is_challenge: false,
            repeats: 0,
            trace: None,
        }
    }

    /// What our SYN offers.
    pub(super) fn offer(&self, now: Instant) -> SynOffer {
        SynOffer::active(&self.config, self.local_mss(), self.clock.value(now))
    }

    /// Largest segment that we take, as our MTU has it.
    fn local_mss(&self) -> u16 {
        let headers = if self.ends.local.is_ipv6() { 60 } else { 40 };
        u16::try_from(self.path.mtu.saturating_sub(headers)).unwrap_or(u16::MAX)
    }

    /// Both ends agree: the halves are set up for what they agreed on.
    pub(super) fn on_established(&mut self, now: Instant, handshake: &Handshake) {
        let config = Arc::clone(&self.config);
        self.agreed = AgreedOptions {
            timestamps: handshake.timestamps.is_some(),
            window_scale: handshake.window_scale,
        };
        self.rx = receiver(now, &config, handshake);
        let shift = handshake.window_scale.map_or(0, |(_, theirs)| theirs);
        let told_by = (self.rx.irs, self.tx.una.max(self.tx.iss + 1));
        let tx = &mut self.tx;
        tx.window = SendWindow::new(handshake.window, shift, told_by);
        tx.options.sack = handshake.sack;
        tx.options.ecn = handshake.ecn;
        tx.size = segment_size(
            &config,
            &self.ends,
            self.path,
            handshake.peer_mss,
            self.agreed.timestamps,
        );
        let repeated = tx.counts.timeouts > 0;
        tx.congestion.restart(initial_window(&config, tx.size.payload()));
        if repeated {
            // RFC 6298 §5.7 and RFC 5681 §3.1: the handshake lost segments.
            tx.rtt.on_repeated_handshake();
            tx.congestion.window.cwnd = tx.congestion.window.mss.into();
        }
        if let Some(rtt) = handshake.rtt {
            tx.rtt.on_sample(now, rtt);
        }
        self.state = TcpState::Established;
        self.timers.heard = now;
        self.restart_keep_alive(now);
    }

    /// Its ends.
    pub const fn ends(&self) -> TcpEnds {
        self.ends
    }

    /// Its state.
    #[inline]
    pub const fn state(&self) -> TcpState {
        self.state
    }

    /// Why it ended, if by an error.
    pub const fn error(&self) -> Option<TcpSocketError> {
        self.error
    }

    /// Whether [`Connection::poll_segment`] may have something.
    #[inline]
    pub const fn has_output(&self) -> bool {
        self.is_ready
    }

    /// Changes what may change of the configuration of an open connection: `nagle`, `keep_alive`, `user_timeout`, `marks`.
    pub fn reconfigure(&mut self, now: Instant, change: impl FnOnce(&mut TcpConfig)) {
        change(Arc::make_mut(&mut self.config));
        self.marks = self.config.marks;
        self.tx.options.nagle = self.config.nagle;
        self.restart_keep_alive(now);
    }

    /// Sets the congestion control anew; the window stays.
    pub fn set_congestion(&mut self, choice: super::congestion::CongestionChoice) {
        self.tx.congestion.algorithm = choice.build(self.config.hystart, self.tx.iss.wire().into());
    }

    /// Most payload of a segment with the usual options.
    #[inline]
    pub const fn segment_payload(&self) -> u16 {
        self.tx.size.payload()
    }

    /// Routing or ICMP told the path's MTU.
    #[inline]
    pub fn on_path(&mut self, path: PathLimits) {
        let mtu = std::mem::replace(&mut self.path, path).mtu;
        if path.mtu != mtu {
            self.on_path_mtu();
        }
    }

    #[cold]
    fn on_path_mtu(&mut self) {
        let by_probes = self.config.mtu_probing
            && self.state.is_synchronized()
            && self.tx.options.sack
            && !self.tx.options.timeout_only;
        if self.tx.size.on_path_mtu(self.path.mtu, by_probes) {
            self.shrink_segments();
        }
        self.tx.congestion.window.mss = self.tx.size.payload().into();
    }

    /// Segments became smaller: those in flight that are too long are sent again.
    pub(super) fn shrink_segments(&mut self) {
        let payload = self.tx.size.payload();
        self.tx.congestion.window.mss = payload.into();
        self.tx.recovery.on_path_shrunk(&mut self.tx.queue, payload.into());
        self.is_ready = true;
    }

    /// Whether the peer acknowledged something new so lately that packets must reach it (RFC 4861 §7.3.1).
    pub fn was_acknowledged(&self, now: Instant) -> bool {
        self.timers.acknowledged.is_some_and(|at| now.saturating_since(at) < DELAY)
    }

    /// The network reported about a segment of ours that began at `seq`; whether that is believed (RFC 5927 §4.1).
    ///
    /// An error is fatal only while the connection opens (RFC 9293 §3.9.2.2): later it may be a route that comes back.
    pub fn on_unreachable(&mut self, kind: DeliveryFailureKind, seq: u32) -> bool {
        let seq = self.tx.una.nearest(seq);
        if seq < self.tx.una || seq >= self.tx.nxt {
            return false;
        }
        if !self.state.is_synchronized() && is_hard(kind) {
            let error = match kind {
                DeliveryFailureKind::Port => TcpSocketError::Refused,
                _ => TcpSocketError::Unreachable(kind),
            };
            self.fail(error);
        } else {
            self.soft_error = Some(kind);
        }
        true
    }

    /// Whether so many retransmissions in a row were not answered that the way to the peer is to be looked at (RFC 9293 §3.8.3, R1); told
    /// once.
    pub const fn take_advice(&mut self) -> bool {
        std::mem::replace(&mut self.timers.is_doubtful, false)
    }

    /// What a TIME-WAIT record needs; `None` in any other state.
    pub fn time_wait(&self) -> Option<TimeWaitState> {
        (self.state == TcpState::TimeWait && !self.is_ready).then(|| TimeWaitState {
            snd_nxt: self.tx.nxt,
            rcv_nxt: self.rx.nxt,
            window: u16::try_from(self.rx.window.current(self.rx.nxt) >> self.shift())
                .unwrap_or(u16::MAX),
            timestamp: self.rx.timestamp.filter(|_| self.agreed.timestamps).map(|(value, _)| value),
            clock: self.clock,
            marks: self.marks,
            until: self.timers.linger.unwrap_or(Instant::NEVER),
            duration: self.config.time_wait,
        })
    }

    fn shift(&self) -> u8 {
        self.agreed.window_scale.map_or(0, |(ours, _)| ours)
    }
}

fn sender_options(config: &TcpConfig, handshake: &Handshake) -> SenderOptions {
    let defects = &config.defects;
    SenderOptions {
        sack: handshake.sack,
        ecn: handshake.ecn,
        nagle: config.nagle,
        pacing: config.pacing,
        super_segment_max: config.super_segment_max,
        silly_window: defects.silly_window,
        timeout_only: defects.timeout_only,
        retransmit_all: defects.retransmit_all,
        measure_retransmissions: defects.measure_retransmissions,
    }
}

fn receiver(now: Instant, config: &TcpConfig, handshake: &Handshake) -> Receiver {
    let options = ReceiverOptions {
        limits: config.receive_buffer,
        pass: config.checksum_pass,
        keeps_content: config.keeps_content,
        silly_window: config.defects.silly_window,
        edge: config.personality.window_edge,
        discards_out_of_order: config.defects.discard_out_of_order,
    };
    let shift = handshake.window_scale.map_or(0, |(ours, _)| ours);
    let acks = AckSchedule::new(config.personality.delayed_ack);
    let irs = SeqNum::initial(handshake.irs);
    Receiver::new(now, irs, (handshake.advertised, shift), handshake.timestamps, acks, &options)
}

fn segment_size(
    config: &TcpConfig,
    ends: &TcpEnds,
    path: PathLimits,
    peer: u16,
    timestamps: bool,
) -> SegmentSize {
    let peer = config.mss_max.map_or(peer, |max| max.min(peer));
    let options = if timestamps { TIMESTAMP_LEN } else { 0 };
    SegmentSize::new(path.mtu, ends.local.is_ipv6(), peer, options)
}

/// RFC 6928 §2: ten segments, at most 14,600 bytes unless that is less than two.
fn initial_window(config: &TcpConfig, mss: u16) -> CongestionWindow {
    let segments = u64::from(config.personality.initial_window);
    let mss64 = u64::from(mss);
    let initial = (segments * mss64).min((segments * 1_460).max(2 * mss64));
    CongestionWindow { cwnd: initial, ssthresh: u64::MAX, mss: mss.into(), initial }
}

/// Whether what the network reports cannot pass by itself (RFC 9293 §3.9.2.2).
pub(super) const fn is_hard(kind: DeliveryFailureKind) -> bool {
    matches!(
        kind,
        DeliveryFailureKind::Port | DeliveryFailureKind::Protocol | DeliveryFailureKind::Prohibited
    )
}

/// When a connection should be given up that has made no progress.
pub(super) fn has_expired(now: Instant, since: Instant, limit: Option<Span>) -> bool {
    limit.is_some_and(|limit| now.saturating_since(since) >= limit)
}
