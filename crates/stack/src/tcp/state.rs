//! States of a connection (RFC 9293 §3.3.2).

use std::fmt;

/// A state of a connection. LISTEN is a listener's, and a listener's half-open connections are in SYN-RECEIVED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TcpState {
    /// A SYN was sent.
    SynSent,
    /// SYNs crossed, ours is not acknowledged.
    SynReceived,
    /// Open both ways.
    Established,
    /// We closed; our FIN is not acknowledged.
    FinWait1,
    /// We closed; the peer has not.
    FinWait2,
    /// The peer closed; we have not.
    CloseWait,
    /// Both closed at once; our FIN is not acknowledged.
    Closing,
    /// The peer closed, then we; our FIN is not acknowledged.
    LastAck,
    /// Both closed; old segments may still come.
    TimeWait,
    /// No connection.
    Closed,
}

impl TcpState {
    /// Its name, as RFC 9293 writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SynSent => "SYN-SENT",
            Self::SynReceived => "SYN-RECEIVED",
            Self::Established => "ESTABLISHED",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::CloseWait => "CLOSE-WAIT",
            Self::Closing => "CLOSING",
            Self::LastAck => "LAST-ACK",
            Self::TimeWait => "TIME-WAIT",
            Self::Closed => "CLOSED",
        }
    }

    /// Whether both ends know each other's sequence numbers.
    #[inline]
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, Self::SynSent | Self::SynReceived | Self::Closed)
    }

    /// Whether we may still queue data.
    #[inline]
    pub const fn can_send(self) -> bool {
        matches!(self, Self::SynSent | Self::SynReceived | Self::Established | Self::CloseWait)
    }

    /// Whether data of the peer may still arrive.
    #[inline]
    pub const fn can_receive(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }
}

impl fmt::Display for TcpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
