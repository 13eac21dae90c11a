//! `plumb net --exchange`: requests and responses over a transport.
//!
//! Left out: what is made of them (`crate::net::exchange`).

use clap::{Args, ValueEnum};
use plumb_base::units::parse_bytes;
use plumb_net::measure::exchange::{PER_SECOND_MAX, Pacing};
use plumb_net::measure::spec::ExchangePart;
use plumb_net::measure::transport::Transport;

/// How requests and responses are measured.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Requests and responses")]
pub struct ExchangeOptions {
    /// Measure requests and responses over these, a phase each; the rest only where --only names it
    #[arg(long, value_name = "TRANSPORTS", value_delimiter = ',')]
    exchange: Vec<Over>,
    /// Bytes of a request
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = parse_bytes)]
    #[arg(requires = "exchange")]
    request: u64,
    /// Bytes of a response [default: as a request]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "exchange")]
    response: Option<u64>,
    /// Send so many at even times, each timed from when it was due [default: each after the response before]
    #[arg(long, value_name = "N", requires = "exchange")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(PER_SECOND_MAX)))]
    per_second: Option<u32>,
    /// Each over a connection of its own: connect, ask, close
    #[arg(long, requires = "exchange", conflicts_with = "per_second")]
    connect_each: bool,
}

/// Over what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Over {
    /// TCP
    Tcp,
    /// UDP; what does not come back in time is lost
    Udp,
    /// TLS 1.3 over TCP
    Tls,
    /// QUIC
    Quic,
}

impl Over {
    const fn transport(self) -> Transport {
        match self {
            Self::Tcp => Transport::Tcp,
            Self::Udp => Transport::Udp,
            Self::Tls => Transport::Tls,
            Self::Quic => Transport::Quic,
        }
    }
}

impl ExchangeOptions {
    /// What they ask for, one phase each.
    pub fn parts(&self) -> Vec<ExchangePart> {
        let narrow = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let pacing = match self.per_second {
            _ if self.connect_each => Pacing::Connect,
            Some(per_second) => Pacing::Open { per_second },
            None => Pacing::Closed,
        };
        let part = |over: &Over| ExchangePart {
            transport: over.transport(),
            request_bytes: narrow(self.request),
            response_bytes: narrow(self.response.unwrap_or(self.request)),
            pacing,
        };
        self.exchange.iter().map(part).collect()
    }
}
