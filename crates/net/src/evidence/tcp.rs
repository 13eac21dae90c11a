//! TCP_INFO as it crosses the wire and is stored.
//!
//! Left out: fields that explain nothing over time.

use std::os::fd::BorrowedFd;

use plumb_sys::tcp_info;
use plumb_sys::tcp_info::TcpInfo;
use serde::{Deserialize, Serialize};

/// One reading of a connection; see [`TcpInfo`] for what each field is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpSample {
    /// Segments in the congestion window.
    pub cwnd_segments: u32,
    /// Slow start threshold in segments.
    pub ssthresh_segments: u32,
    /// Bytes of the largest segment sent.
    pub mss_bytes: u32,
    /// Bytes of the largest segment received.
    pub mss_received_bytes: u32,
    /// Path MTU.
    pub mtu_bytes: u32,
    /// Smoothed round trip.
    pub rtt_us: u32,
    /// Its variation.
    pub rttvar_us: u32,
    /// Smallest round trip of the last minutes.
    pub rtt_min_us: u32,
    /// Retransmission timeout.
    pub rto_us: u32,
    /// Segments under way.
    pub unacked_segments: u32,
    /// Segments held to be lost.
    pub lost_segments: u32,
    /// Segments ever sent again.
    pub retransmitted_segments: u32,
    /// Bytes ever sent again.
    pub retransmitted_bytes: u64,
    /// Bytes acknowledged.
    pub acked_bytes: u64,
    /// Bytes received in order.
    pub received_bytes: u64,
    /// Segments sent.
    pub sent_segments: u32,
    /// Segments received.
    pub received_segments: u32,
    /// Bytes in the send buffer that were never sent.
    pub unsent_bytes: u32,
    /// The latest delivery rate in bytes a second.
    pub delivery_rate: u64,
    /// Whether that rate was the application's.
    pub is_delivery_app_limited: bool,
    /// The pacing rate in bytes a second.
    pub pacing_rate: u64,
    /// Time with something to send.
    pub busy_us: u64,
    /// Of it, with the receiver's window full.
    pub receive_window_us: u64,
    /// Of it, with the send buffer full.
    pub send_buffer_us: u64,
    /// Segments that the other side had already.
    pub duplicate_segments: u32,
    /// Times that segments came out of order.
    pub reorderings: u32,
    /// Segments received out of order.
    pub out_of_order_segments: u32,
    /// Segments delivered with a congestion mark.
    pub marked_segments: u32,
    /// The window that the other side offers.
    pub window_bytes: u32,
}

impl TcpSample {
    /// Reads a connection; zeroes where it is gone already.
    pub fn read(fd: BorrowedFd<'_>) -> Self {
        tcp_info::read(fd).map(|info| Self::of(&info)).unwrap_or_default()
    }

    const fn of(info: &TcpInfo) -> Self {
        Self {
            cwnd_segments: info.snd_cwnd,
            ssthresh_segments: info.snd_ssthresh,
            mss_bytes: info.snd_mss,
            mss_received_bytes: info.rcv_mss,
            mtu_bytes: info.pmtu,
            rtt_us: info.rtt_us,
            rttvar_us: info.rttvar_us,
            rtt_min_us: info.min_rtt_us,
            rto_us: info.rto_us,
            unacked_segments: info.unacked,
            lost_segments: info.lost,
            retransmitted_segments: info.total_retrans,
            retransmitted_bytes: info.bytes_retrans,
            acked_bytes: info.bytes_acked,
            received_bytes: info.bytes_received,
            sent_segments: info.segs_out,
            received_segments: info.segs_in,
            unsent_bytes: info.notsent_bytes,
            delivery_rate: info.delivery_rate,
            is_delivery_app_limited: info.is_rate_app_limited,
            pacing_rate: info.pacing_rate,
            busy_us: info.busy_us,
            receive_window_us: info.rwnd_limited_us,
            send_buffer_us: info.sndbuf_limited_us,
            duplicate_segments: info.dsack_dups,
            reorderings: info.reord_seen,
            out_of_order_segments: info.rcv_ooopack,
            marked_segments: info.delivered_ce,
            window_bytes: info.snd_wnd,
        }
    }
}
