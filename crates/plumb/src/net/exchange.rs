//! Requests and responses: what the document says of them, and what is stored.
//!
//! Left out: the exchange itself (`plumb_net::measure::exchange`).

use plumb_analysis::document::net::{NetPhase, NetRequestResponse};
use plumb_base::units::Unit;
use plumb_net::measure::report::{TestPartReport, TestReport};
use plumb_net::measure::request_response::{RequestPacing, RequesterReport, ResponderReport};
use plumb_net::measure::test_spec::{PartSpec, RequestResponsePart, TestSpec};
use plumb_store::record::{Better, Factors};

use super::phase_summary::{distribution, seconds};

/// The least part of the rate of an open loop that passes for all of it.
const CARRIED_LEAST: f64 = 0.95;

/// What the document says of a phase's requests and responses.
pub(super) fn summarize(
    spec: &TestSpec,
    here: &TestReport,
    there: Option<&TestReport>,
) -> Option<NetRequestResponse> {
    let part = part(spec)?;
    let asked = client_report(here)?;
    let answered = there.and_then(server_report);
    let each = |cpu_ns: u64, requests: u64| {
        (requests > 0 && cpu_ns > 0).then(|| cpu_ns as f64 / requests as f64)
    };
    let counted = seconds(asked.counted_ns);
    let (pacing, per_second) = match part.pacing {
        RequestPacing::Closed => ("closed", None),
        RequestPacing::Open { per_second } => ("open", Some(per_second)),
        RequestPacing::Connect => ("connect", None),
    };
    Some(NetRequestResponse {
        transport: part.transport.word().to_owned(),
        pacing: pacing.to_owned(),
        per_second,
        request_bytes: part.request_bytes,
        response_bytes: part.response_bytes,
        due: asked.due,
        answered: asked.answered,
        lost: asked.lost,
        seconds: counted,
        requests_per_second: if counted > 0.0 { asked.answered as f64 / counted } else { 0.0 },
        latency: distribution(&asked.latency),
        lateness: distribution(&asked.lateness),
        connect: distribution(&asked.connect),
        asking_cpu_ns_per_request: each(asked.cpu_ns, asked.cpu_requests),
        answering_cpu_ns_per_request: answered.and_then(|it| each(it.cpu_ns, it.answered)),
    })
}

fn part(spec: &TestSpec) -> Option<&RequestResponsePart> {
    spec.parts.iter().find_map(|part| match part {
        PartSpec::Exchange(part) => Some(part),
        _ => None,
    })
}

fn client_report(report: &TestReport) -> Option<&RequesterReport> {
    report.parts.iter().find_map(|part| match part {
        TestPartReport::Exchange(asked) => Some(&**asked),
        _ => None,
    })
}

fn server_report(report: &TestReport) -> Option<&ResponderReport> {
    report.parts.iter().find_map(|part| match part {
        TestPartReport::Responses(responses) => Some(responses),
        _ => None,
    })
}

/// What a reader must know before believing the numbers of a phase.
pub(super) fn flags(name: &str, exchange: &NetRequestResponse) -> Vec<String> {
    let late = exchange.lateness.as_ref().and_then(|late| late.p99_ns).unwrap_or(0.0);
    let whole = exchange.latency.as_ref().and_then(|latency| latency.p99_ns);
    let whole = whole.unwrap_or(f64::INFINITY);
    let late = (late > 0.2 * whole).then(|| {
        format!(
            "{name}: requests left late (one in a hundred by {:.2} ms or more), and their times include that",
            late / 1e6
        )
    });
    let slow = exchange.per_second.filter(|&per_second| {
        // One more, because a rate seldom fills the time to its end.
        let carried = exchange.answered + exchange.lost + 1;
        (carried as f64) < CARRIED_LEAST * f64::from(per_second) * exchange.seconds
    });
    let slow = slow.map(|per_second| {
        format!(
            "{name}: {:.0} requests a second were answered, not {per_second}: the path or a host carries no more, and \
             times are those of waiting for it",
            exchange.requests_per_second
        )
    });
    late.into_iter().chain(slow).collect()
}

/// One thing of a phase that is stored.
pub(super) struct StoredResponse {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    pub(super) better: Better,
    /// A single number, or all of a distribution.
    pub(super) value: StoredValue,
}

/// A number, or a histogram of so many.
pub(super) enum StoredValue {
    Number(f64),
    Histogram(Vec<u8>, u64),
}

/// What names the cells of a phase's requests and responses.
pub(super) fn factors(exchange: &NetRequestResponse) -> Factors {
    let factors = Factors::default()
        .with("transport", exchange.transport.as_str())
        .with("pacing", exchange.pacing.as_str())
        .with("request", u64::from(exchange.request_bytes))
        .with("response", u64::from(exchange.response_bytes));
    match exchange.per_second {
        Some(per_second) => factors.with("per_second", u64::from(per_second)),
        None => factors,
    }
}

/// What is stored of a phase's requests and responses.
pub(super) fn stored_responses(phase: &NetPhase, here: &TestReport) -> Vec<StoredResponse> {
    let (Some(said), Some(asked)) = (&phase.exchange, client_report(here)) else {
        return Vec::new();
    };
    let mut kept = Vec::new();
    let mut time = |name, histogram: &Vec<u8>, n: Option<u64>| {
        if let Some(n) = n {
            let value = StoredValue::Histogram(histogram.clone(), n);
            kept.push(StoredResponse {
                name,
                unit: Unit::Nanoseconds,
                better: Better::Lower,
                value,
            });
        }
    };
    time("latency", &asked.latency, said.latency.as_ref().map(|it| it.n));
    time("connect", &asked.connect, said.connect.as_ref().map(|it| it.n));
    if said.answered > 0 {
        let value = StoredValue::Number(said.requests_per_second);
        kept.push(StoredResponse {
            name: "rate",
            unit: Unit::Count,
            better: Better::Higher,
            value,
        });
    }
    let costs = [
        ("cpu.asking", said.asking_cpu_ns_per_request),
        ("cpu.answering", said.answering_cpu_ns_per_request),
    ];
    for (name, cost) in costs {
        if let Some(cost) = cost {
            let value = StoredValue::Number(cost);
            kept.push(StoredResponse {
                name,
                unit: Unit::Nanoseconds,
                better: Better::Lower,
                value,
            });
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_was_not_carried_is_said_and_one_that_was_is_not() {
        let carried = NetRequestResponse {
            pacing: "open".to_owned(),
            per_second: Some(1_000),
            due: 4_000,
            answered: 3_990,
            lost: 10,
            seconds: 4.0,
            requests_per_second: 997.5,
            ..NetRequestResponse::default()
        };
        assert!(flags("exchange udp", &carried).is_empty());
        let slow =
            NetRequestResponse { seconds: 8.0, requests_per_second: 498.75, ..carried.clone() };
        let said = flags("exchange udp", &slow);
        assert!(said.len() == 1 && said[0].contains("499 requests a second"), "{said:?}");
        // One a second, of which one and a half seconds have one.
        let seldom = NetRequestResponse {
            per_second: Some(1),
            answered: 1,
            lost: 0,
            seconds: 1.5,
            ..carried.clone()
        };
        assert!(flags("exchange tcp", &seldom).is_empty());
        let closed = NetRequestResponse { per_second: None, seconds: 8.0, ..carried };
        assert!(flags("exchange tcp", &closed).is_empty());
    }
}
