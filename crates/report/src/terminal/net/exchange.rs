//! Requests and responses, in a terminal.
//!
//! Left out: the other phases of a measurement.

use plumb_analysis::document::net::{NetDistribution, NetRequestResponse};
use plumb_base::units::{Unit, significant};

use super::{COLUMN, format_share, format_span};
use crate::terminal::summary::push_wrapped;
use crate::terminal::{TerminalStyle, TextRole};

/// What the phase is called.
pub(super) fn title(exchange: &NetRequestResponse) -> String {
    let over = match exchange.transport.as_str() {
        "tcp" => "TCP",
        "udp" => "UDP",
        "tls" => "TLS 1.3",
        "quic" => "QUIC",
        other => other,
    };
    let pacing = match (exchange.pacing.as_str(), exchange.per_second) {
        ("open", Some(per_second)) => format!("{per_second} a second"),
        ("connect", _) => "a connection each".to_owned(),
        _ => "one after another".to_owned(),
    };
    format!("Requests and responses over {over}, {pacing}")
}

/// What is said of it.
pub(super) fn put_exchange(out: &mut String, exchange: &NetRequestResponse, style: TerminalStyle) {
    let bytes = |bytes: u32| match bytes {
        0..1_024 => format!("{bytes} B"),
        _ => Unit::Bytes.format(f64::from(bytes), 3).to_string(),
    };
    let size = match (exchange.request_bytes, exchange.response_bytes) {
        (request, response) if request == response => format!("{} each way", bytes(request)),
        (request, response) => format!("{} there, {} back", bytes(request), bytes(response)),
    };
    match &exchange.latency {
        Some(latency) => {
            let text = format!("latency: {} ({size})", quantiles(latency));
            push_wrapped(out, &text, TextRole::Good, COLUMN, style);
        }
        None => push_wrapped(out, "latency: no request was answered", TextRole::Bad, COLUMN, style),
    }
    let rate = significant(exchange.requests_per_second, 4);
    let text = format!("rate: {rate} requests a second for {:.1} s", exchange.seconds);
    push_wrapped(out, &text, TextRole::Plain, COLUMN, style);
    if let Some(lateness) = exchange.lateness.as_ref().filter(|lateness| lateness.n > 0) {
        let most = format_span(lateness.max_ns);
        let text = format!("left late by: {}, most {most}", super::quantiles(lateness));
        push_wrapped(out, &text, TextRole::Plain, COLUMN, style);
    }
    if let Some(connect) = &exchange.connect {
        let text = match connect.n {
            1 => format!("connected in {}", format_span(connect.p50_ns)),
            _ => format!("until connected: {}", quantiles(connect)),
        };
        push_wrapped(out, &text, TextRole::Plain, COLUMN, style);
    }
    let lost = exchange.lost;
    if exchange.transport == "udp" {
        let part = format_share(lost as f64 / exchange.due.max(1) as f64);
        let ink = if lost > 0 { TextRole::Warn } else { TextRole::Plain };
        push_wrapped(
            out,
            &format!("lost: {lost} of {} ({part})", exchange.due),
            ink,
            COLUMN,
            style,
        );
    }
    let costs: Vec<String> = [
        ("here", exchange.asking_cpu_ns_per_request),
        ("there", exchange.answering_cpu_ns_per_request),
    ]
    .into_iter()
    .filter_map(|(side, cost)| Some(format!("{} {side}", format_span(cost?))))
    .collect();
    if !costs.is_empty() {
        push_wrapped(
            out,
            &format!("processor a request: {}", costs.join(", ")),
            TextRole::Plain,
            COLUMN,
            style,
        );
    }
}

fn quantiles(times: &NetDistribution) -> String {
    let (most, least) = (format_span(times.max_ns), format_span(times.min_ns));
    format!("{}, most {most}, least {least}", super::quantiles(times))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange() -> NetRequestResponse {
        let latency = NetDistribution {
            n: 9,
            min_ns: 1.8e4,
            p50_ns: 2.13e4,
            p99_ns: Some(4e4),
            p999_ns: Some(8e4),
            max_ns: 1.2e6,
            ..Default::default()
        };
        NetRequestResponse {
            transport: "udp".to_owned(),
            pacing: "closed".to_owned(),
            request_bytes: 64,
            response_bytes: 64,
            due: 100,
            answered: 98,
            lost: 2,
            seconds: 4.0,
            requests_per_second: 46_812.0,
            latency: Some(latency.clone()),
            connect: Some(latency),
            asking_cpu_ns_per_request: Some(6_100.0),
            answering_cpu_ns_per_request: Some(5_000.0),
            ..Default::default()
        }
    }

    #[test]
    fn the_page_says_times_rate_loss_and_cost_within_forty_columns() {
        let mut page = String::new();
        put_exchange(&mut page, &exchange(), TerminalStyle::plain(120));
        for part in [
            "p50 21.3 µs, p99 40.0 µs, p99.9 80.0 µs, most 1.20 ms, least 18.0 µs (64 B each way)",
            "requests a second for 4.0 s",
            "lost: 2 of 100 (2.0%)",
            "processor a request: 6.10 µs here, 5.00 µs there",
        ] {
            assert!(page.contains(part), "no '{part}' in\n{page}");
        }
        assert_eq!(title(&exchange()), "Requests and responses over UDP, one after another");
        let mut narrow = String::new();
        put_exchange(&mut narrow, &exchange(), TerminalStyle::plain(40));
        assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
    }
}
