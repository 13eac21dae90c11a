//! What the kernel knows of one TCP connection: getsockopt(2) TCP_INFO, by the names of `linux/tcp.h`.
//!
//! Read by offset, because the kernel's structure grows at its end: what an older kernel does not say is zero,
//! and [`TcpInfo::len`] tells how much was said.

use std::io;
use std::os::fd::BorrowedFd;

use crate::read_option;

/// Room for more than any kernel says today (6.x: 248 bytes).
const ROOM: usize = 512;

/// The fields of a `struct tcp_info` that say how a connection fares.
///
/// Times are microseconds unless a name says otherwise; counts are since the connection was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Bytes of the structure that the kernel filled in.
    pub len: usize,
    /// TCP_ESTABLISHED is 1, TCP_CLOSE 7 (`net/tcp_states.h`).
    pub state: u8,
    /// State of the congestion control: open 0, disorder 1, CWR 2, recovery 3, loss 4.
    pub congestion_state: u8,
    /// Whether the last delivery rate was measured while the application had nothing to send.
    pub is_rate_app_limited: bool,
    /// Retransmission timeout.
    pub rto_us: u32,
    /// Largest segment that is sent.
    pub snd_mss: u32,
    /// Largest segment that was received.
    pub rcv_mss: u32,
    /// Segments sent and not yet acknowledged.
    pub unacked: u32,
    /// Segments held to be lost at this moment.
    pub lost: u32,
    /// Segments retransmitted and not yet acknowledged.
    pub retrans: u32,
    /// Path MTU in bytes.
    pub pmtu: u32,
    /// Smoothed round trip.
    pub rtt_us: u32,
    /// Its variation.
    pub rttvar_us: u32,
    /// Slow start threshold, in segments.
    pub snd_ssthresh: u32,
    /// Congestion window, in segments.
    pub snd_cwnd: u32,
    /// How far segments were seen out of order.
    pub reordering: u32,
    /// Round trip as the receiver estimates it.
    pub rcv_rtt_us: u32,
    /// Bytes that the application took in a round trip, by which the receive buffer grows.
    pub rcv_space: u32,
    /// Segments ever retransmitted.
    pub total_retrans: u32,
    /// Pacing rate in bytes a second; all ones without pacing.
    pub pacing_rate: u64,
    /// Bytes acknowledged.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Segments sent.
    pub segs_out: u32,
    /// Segments received.
    pub segs_in: u32,
    /// Bytes in the send buffer that were never sent.
    pub notsent_bytes: u32,
    /// Smallest round trip of the last minutes.
    pub min_rtt_us: u32,
    /// The latest delivery rate, in bytes a second.
    pub delivery_rate: u64,
    /// Time during which there was something to send.
    pub busy_us: u64,
    /// Of it, the time during which the receiver's window was full.
    pub rwnd_limited_us: u64,
    /// Of it, the time during which the send buffer was full.
    pub sndbuf_limited_us: u64,
    /// Segments delivered.
    pub delivered: u32,
    /// Of them, those that came with a congestion mark.
    pub delivered_ce: u32,
    /// Bytes sent, with those sent again.
    pub bytes_sent: u64,
    /// Bytes sent again.
    pub bytes_retrans: u64,
    /// Segments that the other side says it had already.
    pub dsack_dups: u32,
    /// Times that segments were seen out of order.
    pub reord_seen: u32,
    /// Segments received out of order.
    pub rcv_ooopack: u32,
    /// The window that the other side offers, in bytes.
    pub snd_wnd: u32,
}

/// getsockopt(2) TCP_INFO.
///
/// # Errors
/// The kernel's; EOPNOTSUPP on a socket that is not of TCP.
pub fn read(fd: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    let mut bytes = [0_u8; ROOM];
    let len = read_option(fd, (libc::IPPROTO_TCP, libc::TCP_INFO), &mut bytes)?;
    Ok(parse(&bytes, len))
}

/// Offsets as `pahole` shows them of `struct tcp_info`.
fn parse(bytes: &[u8; ROOM], len: usize) -> TcpInfo {
    let word = |at: usize| {
        bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_ne_bytes)
    };
    let long = |at: usize| {
        bytes.get(at..at + 8).and_then(|long| long.try_into().ok()).map_or(0, u64::from_ne_bytes)
    };
    TcpInfo {
        len,
        state: bytes[0],
        congestion_state: bytes[1],
        is_rate_app_limited: bytes[7] & 1 == 1,
        rto_us: word(8),
        snd_mss: word(16),
        rcv_mss: word(20),
        unacked: word(24),
        lost: word(32),
        retrans: word(36),
        pmtu: word(60),
        rtt_us: word(68),
        rttvar_us: word(72),
        snd_ssthresh: word(76),
        snd_cwnd: word(80),
        reordering: word(88),
        rcv_rtt_us: word(92),
        rcv_space: word(96),
        total_retrans: word(100),
        pacing_rate: long(104),
        bytes_acked: long(120),
        bytes_received: long(128),
        segs_out: word(136),
        segs_in: word(140),
        notsent_bytes: word(144),
        min_rtt_us: word(148),
        delivery_rate: long(160),
        busy_us: long(168),
        rwnd_limited_us: long(176),
        sndbuf_limited_us: long(184),
        delivered: word(192),
        delivered_ce: word(196),
        bytes_sent: long(200),
        bytes_retrans: long(208),
        dsack_dups: word(216),
        reord_seen: word(220),
        rcv_ooopack: word(224),
        snd_wnd: word(228),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a deadline of this test")]
    fn both_ends_count_the_bytes_that_passed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let sent = vec![7_u8; 100_000];
        std::thread::scope(|scope| {
            scope.spawn(|| sender.write_all(&sent).unwrap());
            receiver.read_exact(&mut vec![0; sent.len()]).unwrap();
        });
        let there = read(receiver.as_fd()).unwrap();
        assert_eq!((there.state, there.bytes_received), (1, 100_000));
        let begun = std::time::Instant::now();
        let here = loop {
            let here = read(sender.as_fd()).unwrap();
            assert!(begun.elapsed().as_secs() < 60, "never acknowledged: {here:?}");
            if here.unacked == 0 && here.notsent_bytes == 0 {
                break here;
            }
            std::thread::yield_now();
        };
        assert!(here.len >= 192, "{here:?}");
        // The SYN counts as one.
        assert!((100_000..=100_001).contains(&here.bytes_acked), "{here:?}");
        assert!(here.snd_mss > 500 && here.snd_cwnd > 0 && here.pmtu > 500, "{here:?}");
    }

    #[test]
    fn a_socket_of_another_protocol_is_refused() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(read(socket.as_fd()).is_err());
    }
}
