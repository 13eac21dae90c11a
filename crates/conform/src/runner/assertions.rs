//! Assertions about `tcp_info`: its fields from the figures of a connection, in Linux's units.

use plumb_base::time::Span;
use plumb_stack::tcp::{RecoveryPhase, TcpInfo, TcpState};

use super::{ScriptRunner, StepResult, failed};
use crate::code::{CodeStatement, UnknownNameError};
use crate::outcome::{ScriptOutcome, ScriptPosition};

impl ScriptRunner {
    /// Evaluates a code block.
    pub(super) fn check_code(
        &mut self,
        at: ScriptPosition,
        statements: &[CodeStatement],
    ) -> StepResult {
        let info = self.sockets.info(&self.world);
        let known = |name: &str| constant(name).or_else(|| field(name, info.as_ref()?));
        let unknown = |UnknownNameError(name): UnknownNameError| ScriptOutcome::Unsupported {
            at,
            what: format!("the name {name}"),
        };
        for statement in statements {
            match statement {
                CodeStatement::Assign(name, value) => {
                    let value = self.names.evaluate(value, &known).map_err(unknown)?;
                    self.names.assigned.insert(name.clone(), value);
                }
                CodeStatement::Assert(condition, text) => {
                    if self.names.evaluate(condition, &known).map_err(unknown)? == 0 {
                        let values = shown(text, &known);
                        return failed(at, format!("'{text}' does not hold: {values}"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The fields in an assertion with their values.
fn shown(text: &str, known: &dyn Fn(&str) -> Option<i64>) -> String {
    let mut names: Vec<&str> = text
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("tcpi_"))
        .collect();
    names.sort_unstable();
    names.dedup();
    let values = names.iter().filter_map(|name| Some(format!("{name} is {}", known(name)?)));
    values.collect::<Vec<_>>().join(", ")
}

fn constant(name: &str) -> Option<i64> {
    const NAMES: [(&str, i64); 37] = [
        ("TCP_ESTABLISHED", 1),
        ("TCP_SYN_SENT", 2),
        ("TCP_SYN_RECV", 3),
        ("TCP_FIN_WAIT1", 4),
        ("TCP_FIN_WAIT2", 5),
        ("TCP_TIME_WAIT", 6),
        ("TCP_CLOSE", 7),
        ("TCP_CLOSE_WAIT", 8),
        ("TCP_LAST_ACK", 9),
        ("TCP_LISTEN", 10),
        ("TCP_CLOSING", 11),
        // FreeBSD's names of the same.
        ("TCPI_ESTABLISHED", 1),
        ("TCPI_SYN_SENT", 2),
        ("TCPI_SYN_RECEIVED", 3),
        ("TCPI_FIN_WAIT_1", 4),
        ("TCPI_FIN_WAIT_2", 5),
        ("TCPI_TIME_WAIT", 6),
        ("TCPI_CLOSED", 7),
        ("TCPI_CLOSE_WAIT", 8),
        ("TCPI_LAST_ACK", 9),
        ("TCPI_LISTEN", 10),
        ("TCPI_CLOSING", 11),
        ("TCP_CA_Open", 0),
        ("TCP_CA_Disorder", 1),
        ("TCP_CA_CWR", 2),
        ("TCP_CA_Recovery", 3),
        ("TCP_CA_Loss", 4),
        ("TCPI_OPT_TIMESTAMPS", 1),
        ("TCPI_OPT_SACK", 2),
        ("TCPI_OPT_WSCALE", 4),
        ("TCPI_OPT_ECN", 8),
        ("TCPI_OPT_ECN_SEEN", 16),
        ("TCPI_OPT_SYN_DATA", 32),
        ("TCPI_OPT_USEC_TS", 64),
        ("TCP_INFINITE_SSTHRESH", 0x7fff_ffff),
        ("True", 1),
        ("False", 0),
    ];
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// A field of `tcp_info`: segments where Linux counts segments, microseconds where it counts those.
fn field(name: &str, info: &TcpInfo) -> Option<i64> {
    let mss = u64::from(info.mss).max(1);
    let segments = |bytes: u64| bytes.div_ceil(mss);
    let us = |span: Span| span.as_ns() / 1_000;
    let value = match name {
        "tcpi_state" => state(info.state),
        "tcpi_ca_state" => match info.phase {
            RecoveryPhase::Open => 0,
            RecoveryPhase::Disorder => 1,
            RecoveryPhase::Reduction => 2,
            RecoveryPhase::Recovery => 3,
            RecoveryPhase::Loss => 4,
        },
        "tcpi_backoff" => info.backoff.into(),
        "tcpi_options" => {
            let (timestamps, sack, ecn) = info.options;
            let scale = info.window_scale.is_some();
            u64::from(timestamps)
                | u64::from(sack) << 1
                | u64::from(scale) << 2
                | u64::from(ecn) << 3
        }
        "tcpi_snd_wscale" => info.window_scale.map_or(0, |(theirs, _)| theirs.into()),
        "tcpi_rcv_wscale" => info.window_scale.map_or(0, |(_, ours)| ours.into()),
        "tcpi_rto" => us(info.rto),
        "tcpi_snd_mss" => mss,
        "tcpi_rcv_mss" => info.mss_received.into(),
        "tcpi_unacked" => segments(info.outstanding),
        "tcpi_sacked" => segments(info.sacked),
        "tcpi_lost" => segments(info.lost),
        "tcpi_retrans" => segments(info.retransmitted),
        "tcpi_pmtu" => info.path_mtu.into(),
        "tcpi_rtt" => us(info.srtt.unwrap_or_default()),
        "tcpi_rttvar" => us(info.rtt_variance),
        "tcpi_min_rtt" => us(info.rtt_min.unwrap_or_default()),
        "tcpi_snd_cwnd" => info.cwnd / mss,
        // Linux's threshold before the first reduction.
        "tcpi_snd_ssthresh" if info.ssthresh >= u64::from(u32::MAX) => 0x7fff_ffff,
        "tcpi_snd_ssthresh" => info.ssthresh / mss,
        "tcpi_total_retrans" => info.sent.retransmits,
        "tcpi_bytes_received" => info.received.bytes,
        "tcpi_bytes_retrans" => info.sent.retransmitted_bytes,
        "tcpi_segs_out" => info.sent.segments,
        "tcpi_segs_in" => info.received.segments,
        "tcpi_notsent_bytes" => info.unsent,
        "tcpi_delivered" => segments(info.delivered),
        "tcpi_dsack_dups" => info.sent.dsacks,
        "tcpi_rcv_ooopack" => info.received.out_of_order,
        "tcpi_snd_wnd" => info.send_window,
        "tcpi_rcv_wnd" => info.receive_window,
        "tcpi_total_rto" => info.sent.timeouts,
        _ => return None,
    };
    i64::try_from(value).ok()
}

const fn state(state: TcpState) -> u64 {
    match state {
        TcpState::Established => 1,
        TcpState::SynSent => 2,
        TcpState::SynReceived => 3,
        TcpState::FinWait1 => 4,
        TcpState::FinWait2 => 5,
        TcpState::TimeWait => 6,
        TcpState::Closed => 7,
        TcpState::CloseWait => 8,
        TcpState::LastAck => 9,
        TcpState::Closing => 11,
    }
}
