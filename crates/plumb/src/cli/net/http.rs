//! `plumb net --http`: one page and its images over every version of HTTP.

use std::net::SocketAddr;

use clap::Args;
use plumb_analysis::document::http::{HttpDocument, HttpModeResult, HttpPageLoad, SCHEMA};
use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_harness::stop_signals;
use plumb_interop::http::client::{HttpFetchMode, PageLoad};
use plumb_interop::http::report::{self, FetchModeReport, PageReport, PageSpec, VISITS_MAX};
use plumb_interop::http::target::HttpTarget;
use plumb_interop::http::trust::CertificateTrust;
use plumb_remote::secure::Fingerprint;

use crate::cli::GlobalOptions;
use crate::cli::net::http_page::render;
use crate::cli::net::stored_document;
use crate::cli::output::{CliOutput, CommandError};
use crate::net::host_target::AddressFamily;
use crate::net::stored_page;
use crate::problem::{ExitReason, Problem};

/// Options of page loads.
#[derive(Clone, Debug, Args)]
pub struct HttpOptions {
    /// Measure one page and its images over every version of HTTP: a URL, or a host where `plumb agent --http` runs
    #[arg(long, value_name = "URL|HOST", help_heading = "A page")]
    #[arg(conflicts_with_all = super::AGENT_OPTIONS)]
    #[arg(conflicts_with_all = ["time", "interval"])]
    pub http: Option<String>,
    /// Only these modes: one-each, keep-alive, pipelined, http2, http3 [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "http")]
    #[arg(help_heading = "A page")]
    http_modes: Vec<String>,
    /// Page loads in each mode, after one that is not counted
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20,
        requires = "http",
        help_heading = "A page"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(VISITS_MAX)))]
    visits: u32,
    /// Accept only the certificate with this fingerprint, as `plumb agent --http` prints it
    #[arg(long, value_name = "sha256:…", requires = "http", conflicts_with = "insecure")]
    #[arg(help_heading = "A page")]
    cert_fingerprint: Option<Fingerprint>,
    /// Skip certificate verification
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
        family: AddressFamily,
        keeping: Option<&GlobalOptions>,
        output: &CliOutput,
    ) -> Result<ExitReason, CommandError> {
        let target = HttpTarget::parse(url)
            .map_err(|error| Problem::from_message(&error.to_string(), ExitReason::Usage))?;
        let ways = self.ways()?;
        let trust = match self.cert_fingerprint {
            Some(fingerprint) => CertificateTrust::Pinned(fingerprint),
            // What plumb's own page brings is known to the byte, and secret it is not.
            None if self.insecure || target.is_plumb => CertificateTrust::AnyCertificate,
            None => CertificateTrust::SystemRoots,
        };
        let address = choose(&target, family)?;
        let seed =
            Seed(plumb_clock::entropy().map_err(|error| {
                Problem::failure("the system gives no random seed").because(error)
            })?);
        let spec = PageSpec { ways, visits: self.visits, seed };
        stop_signals::count_stop_requests().ok();
        let created_unix_ms = plumb_clock::unix_ms();
        let began_ns = plumb_clock::monotonic_ns();
        let report = report::measure(&target, address, trust, &spec, |round| {
            if output.progress {
                output.draw_line(&format!("page loads: {round} of {} in each mode", spec.visits));
            }
            stop_signals::stop_requests() == 0
        });
        if output.progress {
            output.erase_line();
        }
        let is_interrupted = stop_signals::stop_requests() > 0;
        // A mode that the server lacks is a result; no mode at all is a failure.
        if report.ways.iter().all(|way| way.visits.is_empty()) {
            if is_interrupted {
                return Err(Problem::from_message(
                    "interrupted before the first counted page load; there is no result",
                    ExitReason::Interrupted,
                )
                .into());
            }
            return Err(failure(&report, &target).into());
        }
        let seconds = Span::from_ns(plumb_clock::monotonic_ns() - began_ns).as_secs_f64();
        let mut document =
            HttpDocument { created_unix_ms, seconds, ..document(report, is_interrupted) };
        // What cannot be stored is printed nevertheless.
        let stored = match keeping {
            Some(global) => stored_document::store(global, output, &mut document, stored_page::run),
            None => Ok(()),
        };
        if output.json {
            output.document(&document)?;
        } else {
            output.page(&render(&document, output))?;
        }
        stored?;
        Ok(if is_interrupted { ExitReason::Interrupted } else { ExitReason::Success })
    }

    fn ways(&self) -> Result<Vec<HttpFetchMode>, Problem> {
        if self.http_modes.is_empty() {
            return Ok(HttpFetchMode::ALL.to_vec());
        }
        let names = self.http_modes.iter().map(|name| name.trim());
        let ways: Result<Vec<HttpFetchMode>, Problem> = names
            .map(|name| {
                HttpFetchMode::from_name(name).ok_or_else(|| {
                    Problem::usage(format!("'{name}' is not a fetch mode"))
                        .suggest(name, HttpFetchMode::ALL.map(HttpFetchMode::name))
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
fn choose(target: &HttpTarget, family: AddressFamily) -> Result<SocketAddr, Problem> {
    let addresses = target.resolve().map_err(|error| {
        Problem::failure(format!("'{}' has no address", target.host))
            .because(error)
            .fix("check the spelling, or write the address itself")
    })?;
    let addresses = family.filter_addresses(&target.host, &addresses)?;
    let patience = std::time::Duration::from_secs(3);
    let answers =
        |address: &&SocketAddr| std::net::TcpStream::connect_timeout(address, patience).is_ok();
    let first = addresses.first().copied();
    addresses
        .iter()
        .find(answers)
        .copied()
        .or(first)
        .ok_or_else(|| Problem::failure(format!("'{}' has no address", target.host)))
}

fn document(report: PageReport, is_interrupted: bool) -> HttpDocument {
    let PageReport { url, address, is_verified, is_server_proven, seed, ways } = report;
    let ended = if is_interrupted { "interrupted" } else { "complete" };
    let visit = |visit: &PageLoad| {
        let PageLoad { total_ns, connected_ns, page_ns, cpu_ns, connections, objects, bytes } =
            *visit;
        HttpPageLoad { total_ns, connected_ns, page_ns, cpu_ns, connections, objects, bytes }
    };
    let way = |way: FetchModeReport| {
        let FetchModeReport { way, is_encrypted, visits, error } = way;
        HttpModeResult { way, is_encrypted, visits: visits.iter().map(visit).collect(), error }
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

/// Why no mode fetched the page: the reason of each, or the one that they share.
fn failure(report: &PageReport, target: &HttpTarget) -> Problem {
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
            "start 'plumb agent --http ADDRESS' there, check that no firewall drops its port, or give a \
             whole URL for another kind of server"
        }
        Some(fix) => fix,
        None => "check whether a browser or curl can fetch it from this host",
    };
    Problem::failure(format!("no mode could fetch {url} from {address}")).because(why).fix(fix)
}
