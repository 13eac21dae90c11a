//! `plumb net --http`: one page and its images over every version of HTTP.
//!
//! Left out: fetching, which is `plumb_net::http`'s, and the run that is stored (`crate::net::page`).

use std::net::SocketAddr;

use clap::Args;
use plumb_analysis::document::http::{HttpDocument, HttpVisit, HttpWay, SCHEMA};
use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_base::units::Unit;
use plumb_host::{clock, stop};
use plumb_net::http::client::{Visit, Way};
use plumb_net::http::report::{self, PageReport, PageSpec, VISITS_MAX, WayReport};
use plumb_net::http::target::Target;
use plumb_net::http::trust::Trust;
use plumb_net::secure::Fingerprint;
use plumb_report::table::{Table, text};
use plumb_report::terminal::Ink;

use super::kept;
use crate::cli::Global;
use crate::cli::output::{Failure, Output};
use crate::net::page;
use crate::net::place::Family;
use crate::problem::{Exit, Problem};

/// How a page is measured.
#[derive(Clone, Debug, Args)]
pub struct HttpOptions {
    /// Measure one page and its images over every version of HTTP: a URL, or a host where `plumb agent --http` runs
    #[arg(long, value_name = "URL|HOST", help_heading = "A page")]
    #[arg(conflicts_with_all = super::OF_AGENTS)]
    pub http: Option<String>,
    /// Only these ways: one-each, keep-alive, pipelined, http2, http3 [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "http")]
    #[arg(help_heading = "A page")]
    http_ways: Vec<String>,
    /// Visits of each way, after one that is not counted
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20,
        requires = "http",
        help_heading = "A page"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(VISITS_MAX)))]
    visits: u32,
    /// Take the server's certificate by its fingerprint, as `plumb agent --http` prints it
    #[arg(long, value_name = "sha256:…", requires = "http", conflicts_with = "insecure")]
    #[arg(help_heading = "A page")]
    pin: Option<Fingerprint>,
    /// Take anybody's certificate
    #[arg(long, requires = "http", help_heading = "A page")]
    insecure: bool,
}

impl HttpOptions {
    /// Measures the page at `url`, prints what came of it, and keeps it where a store is named.
    ///
    /// # Errors
    /// No such page or host, no way that brings it, or the store's.
    pub fn perform(
        &self,
        url: &str,
        family: Family,
        keeping: Option<&Global>,
        output: &Output,
    ) -> Result<Exit, Failure> {
        let target = Target::parse(url)
            .map_err(|error| Problem::from_message(&error.to_string(), Exit::Usage))?;
        let ways = self.ways()?;
        let trust = match self.pin {
            Some(fingerprint) => Trust::Pinned(fingerprint),
            // What plumb's own page brings is known to the byte, and secret it is not.
            None if self.insecure || target.is_plumb => Trust::Anybody,
            None => Trust::Web,
        };
        let address = choose(&target, family)?;
        let seed =
            Seed(clock::entropy().map_err(|error| {
                Problem::trouble("the system gives no random seed").because(error)
            })?);
        let spec = PageSpec { ways, visits: self.visits, seed };
        stop::listen().ok();
        let created_unix_ms = clock::unix_ms();
        let began_ns = clock::monotonic_ns();
        let report = report::measure(&target, address, trust, &spec, |round| {
            if output.progress {
                output.draw_line(&format!("visits: {round} of {} of each way", spec.visits));
            }
            stop::requests() == 0
        });
        if output.progress {
            output.erase_line();
        }
        let is_interrupted = stop::requests() > 0;
        // A way that a server does not speak is a result; none at all is trouble.
        if report.ways.iter().all(|way| way.visits.is_empty()) {
            if is_interrupted {
                return Err(Problem::from_message(
                    "interrupted before any visit that counts; nothing is known of the page",
                    Exit::Interrupted,
                )
                .into());
            }
            return Err(failure(&report, &target).into());
        }
        let seconds = Span::from_ns(clock::monotonic_ns() - began_ns).as_secs_f64();
        let mut document =
            HttpDocument { created_unix_ms, seconds, ..document(report, is_interrupted) };
        // What cannot be stored is printed nevertheless.
        let stored = match keeping {
            Some(global) => kept::keep(global, output, &mut document, page::run),
            None => Ok(()),
        };
        if output.json {
            output.document(&document)?;
        } else {
            output.page(&render(&document, output))?;
        }
        stored?;
        Ok(if is_interrupted { Exit::Interrupted } else { Exit::Fine })
    }

    fn ways(&self) -> Result<Vec<Way>, Problem> {
        if self.http_ways.is_empty() {
            return Ok(Way::ALL.to_vec());
        }
        let names = self.http_ways.iter().map(|name| name.trim());
        let ways: Result<Vec<Way>, Problem> = names
            .map(|name| {
                Way::from_name(name).ok_or_else(|| {
                    Problem::usage(format!("'{name}' is no way to fetch a page"))
                        .suggest(name, Way::ALL.map(Way::name))
                })
            })
            .collect();
        let mut ways = ways?;
        ways.sort_unstable();
        ways.dedup();
        Ok(ways)
    }
}

/// The first address of the target that takes a connection; of those that do not, the first.
fn choose(target: &Target, family: Family) -> Result<SocketAddr, Problem> {
    let addresses = target.resolve().map_err(|error| {
        Problem::trouble(format!("'{}' has no address", target.host))
            .because(error)
            .fix("check the spelling, or write the address itself")
    })?;
    let addresses = family.of(&target.host, &addresses)?;
    let patience = std::time::Duration::from_secs(3);
    let answers =
        |address: &&SocketAddr| std::net::TcpStream::connect_timeout(address, patience).is_ok();
    let first = addresses.first().copied();
    addresses
        .iter()
        .find(answers)
        .copied()
        .or(first)
        .ok_or_else(|| Problem::trouble(format!("'{}' has no address", target.host)))
}

fn document(report: PageReport, is_interrupted: bool) -> HttpDocument {
    let PageReport { url, address, is_verified, is_server_proven, seed, ways } = report;
    let ended = if is_interrupted { "interrupted" } else { "complete" };
    let visit = |visit: &Visit| {
        let Visit { total_ns, connected_ns, page_ns, cpu_ns, connections, objects, bytes } = *visit;
        HttpVisit { total_ns, connected_ns, page_ns, cpu_ns, connections, objects, bytes }
    };
    let way = |way: WayReport| {
        let WayReport { way, is_encrypted, visits, error } = way;
        HttpWay { way, is_encrypted, visits: visits.iter().map(visit).collect(), error }
    };
    HttpDocument {
        schema: SCHEMA.to_owned(),
        url,
        address,
        is_verified,
        is_server_proven,
        seed,
        ended: ended.to_owned(),
        ways: ways.into_iter().map(way).collect(),
        ..HttpDocument::default()
    }
}

/// Why no way brought the page, with the reason of each, or the one that they share.
fn failure(report: &PageReport, target: &Target) -> Problem {
    let PageReport { url, address, ways, .. } = report;
    let errors: Vec<(&str, &str)> =
        ways.iter().filter_map(|way| Some((way.way.as_str(), way.error.as_deref()?))).collect();
    let shared = errors.first().map(|(_, error)| *error).unwrap_or_default();
    let (why, own_fix) = if errors.iter().all(|(_, error)| *error == shared) {
        let (reason, fix) = shared.split_once("; ").map_or((shared, None), |(a, b)| (a, Some(b)));
        (reason.to_owned(), fix)
    } else {
        let each = errors.iter().map(|(way, error)| format!("{way}: {error}"));
        (each.collect::<Vec<_>>().join(". "), None)
    };
    let fix = match own_fix {
        _ if target.is_plumb => {
            "start 'plumb agent --http ADDRESS' there, look whether a firewall lets its port through, or give a \
             whole URL for a server of another kind"
        }
        Some(fix) => fix,
        None => "look whether a browser or curl can fetch it from this host",
    };
    Problem::trouble(format!("no way brought {url} from {address}")).because(why).fix(fix)
}

/// The page for people.
pub fn render(report: &HttpDocument, output: &Output) -> String {
    let style = output.style;
    let visit = report.ways.iter().find_map(|way| way.visits.first());
    let size = visit.map_or_else(String::new, |visit| {
        format!(": {} objects, {} B", visit.objects, visit.bytes)
    });
    let mut out = put(output, Ink::Bold, &format!("{}{size}", report.url));
    let mut table = Table::with_heads(&[
        "way",
        "#whole page",
        "#p90?",
        "#ready??",
        "#page itself??",
        "#client CPU?",
        "#connections??",
    ]);
    for way in report.ways.iter().filter(|way| !way.visits.is_empty()) {
        let time = |share, of: fn(&HttpVisit) -> u64| {
            let ns = way.quantile(share, of);
            ns.map_or("–".to_owned(), |ns| Unit::Nanoseconds.format(ns as f64, 3).to_string())
        };
        table.push([
            name(way),
            time(0.5, |visit| visit.total_ns),
            time(0.9, |visit| visit.total_ns),
            time(0.5, |visit| visit.connected_ns),
            time(0.5, |visit| visit.page_ns),
            time(0.5, |visit| visit.cpu_ns),
            way.visits[0].connections.to_string(),
        ]);
    }
    let visits = report.ways.iter().map(|way| way.visits.len()).max().unwrap_or(0);
    out += &text::render(&table, style);
    for way in &report.ways {
        if let Some(error) = &way.error {
            out += &put(output, Ink::Warn, &format!("{}: {error}", name(way)));
        }
    }
    out += &put(
        output,
        Ink::Dim,
        &format!(
            "Medians of {visits} visits, from the first connection attempt to the last byte. Ready: the first \
         connection can be used, encryption included. From {}.{}{}",
            report.address,
            if report.is_verified {
                " Every byte was compared with what plumb's server has."
            } else {
                ""
            },
            match (report.ways.iter().any(|way| way.is_encrypted), report.is_server_proven) {
                (true, false) => " The server's certificate was not checked.",
                _ => "",
            },
        ),
    );
    out
}

fn name(way: &HttpWay) -> String {
    let name = Way::from_name(&way.way).map_or(way.way.as_str(), |way| way.summary());
    let is_extra = way.is_encrypted && way.way != Way::Http3.name();
    if is_extra { format!("{name}, TLS 1.3") } else { name.to_owned() }
}

fn put(output: &Output, ink: Ink, text: &str) -> String {
    let style = output.style;
    let lines = style.wrap(text, 0).into_iter();
    lines.map(|line| style.paint(ink, &style.spell(&line)) + "\n").collect()
}
