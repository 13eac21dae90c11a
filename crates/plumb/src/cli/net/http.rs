//! `plumb net --http`: one page and its images over every version of HTTP.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clap::Args;
use plumb_base::time::Span;
use plumb_interop::http::client::CertificateTrust;
use plumb_interop::http::target::HttpTarget;
use plumb_interop::http::{self, PageSpec, VISITS_MAX};
use plumb_remote::secure::Fingerprint;
use plumb_result::http::{HttpDocument, HttpEnding, HttpFetchMode};

use crate::cli::net::stored_document;
use crate::cli::output::{CliOutput, CommandResult};
use crate::cli::{GlobalOptions, handle_stop_signals, is_stopped, seed_or_random};
use crate::net::host_target::AddressFamily;
use crate::net::stored_run::StoredDocument as _;
use crate::problem::{ExitReason, Problem};

/// Time for a connection to one of several addresses.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Options of page loads.
#[derive(Clone, Debug, Args)]
pub struct HttpOptions {
    /// Measure a page and its images over every version of HTTP: a URL, or a host that runs `plumb agent --http`
    #[arg(long, value_name = "URL|HOST", help_heading = "A page")]
    #[arg(conflicts_with_all = super::AGENT_OPTIONS)]
    #[arg(conflicts_with_all = ["time", "interval"])]
    pub http: Option<String>,
    /// Modes: one-each, keep-alive, pipelined, http2, http3 [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "http")]
    #[arg(help_heading = "A page")]
    http_modes: Vec<String>,
    /// Page loads per mode, after one that is not counted
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20,
        requires = "http",
        help_heading = "A page"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(VISITS_MAX)))]
    visits: u32,
    /// Accept only the certificate with this fingerprint, printed by `plumb agent --http`
    #[arg(long, value_name = "sha256:…", requires = "http", conflicts_with = "insecure")]
    #[arg(help_heading = "A page")]
    cert_fingerprint: Option<Fingerprint>,
    /// Skip certificate verification
    #[arg(long, requires = "http", help_heading = "A page")]
    insecure: bool,
}

impl HttpOptions {
    /// Measures the page at `url`, prints the result, and stores it if `store` is given.
    ///
    /// # Errors
    /// No such page or host, no mode that fetches it, or an error of the store.
    pub fn perform(
        &self,
        url: &str,
        family: AddressFamily,
        store: Option<&GlobalOptions>,
        output: &CliOutput,
    ) -> CommandResult {
        let target = HttpTarget::parse(url).map_err(Problem::rejected)?;
        let ways = self.modes()?;
        let trust = match self.cert_fingerprint {
            Some(fingerprint) => CertificateTrust::Pinned(fingerprint),
            // plumb's own page is public, and its bytes are known.
            None if self.insecure || target.is_plumb => CertificateTrust::AnyCertificate,
            None => CertificateTrust::SystemRoots,
        };
        let address = choose(&target, family)?;
        let spec = PageSpec { ways, visits: self.visits, seed: seed_or_random(None)? };
        handle_stop_signals()?;
        let created_unix_ms = plumb_clock::unix_ms();
        let began_ns = plumb_clock::monotonic_ns();
        let report = http::measure_page(&target, address, trust, &spec, |round| {
            if output.progress {
                output.draw_line(&format!("page loads: {round} of {} in each mode", spec.visits));
            }
            !is_stopped()
        });
        if output.progress {
            output.erase_line();
        }
        let is_interrupted = is_stopped();
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
        let ended = if is_interrupted { HttpEnding::Interrupted } else { HttpEnding::Complete };
        let seconds = Span::from_ns(plumb_clock::monotonic_ns() - began_ns).as_secs_f64();
        let mut document = HttpDocument { created_unix_ms, seconds, ended, ..report };
        // Printed even if it cannot be stored.
        let stored = match store {
            Some(global) => stored_document::store(global, output, &mut document),
            None => Ok(()),
        };
        output.show(&document, |style| document.page(false, style))?;
        stored?;
        Ok(if is_interrupted { ExitReason::Interrupted } else { ExitReason::Success })
    }

    fn modes(&self) -> Result<Vec<HttpFetchMode>, Problem> {
        if self.http_modes.is_empty() {
            return Ok(HttpFetchMode::ALL.to_vec());
        }
        let mode = |name: &str| {
            HttpFetchMode::from_name(name).ok_or_else(|| {
                Problem::usage(format!("'{name}' is not a fetch mode"))
                    .suggest(name, HttpFetchMode::ALL.map(HttpFetchMode::name))
            })
        };
        let modes: Result<BTreeSet<_>, _> =
            self.http_modes.iter().map(|name| mode(name.trim())).collect();
        Ok(modes?.into_iter().collect())
    }
}

/// The first address of the target that accepts a connection; the first of all if none does.
fn choose(target: &HttpTarget, family: AddressFamily) -> Result<SocketAddr, Problem> {
    let addresses = target.resolve().map_err(|error| {
        Problem::failure(format!("'{}' has no address", target.host))
            .because(error)
            .fix("check the spelling, or write the address itself")
    })?;
    let addresses = family.filter_addresses(&target.host, &addresses)?;
    let accepts =
        |address: &&SocketAddr| TcpStream::connect_timeout(address, CONNECT_TIMEOUT).is_ok();
    let found = addresses.iter().find(accepts).or(addresses.first()).copied();
    found.ok_or_else(|| Problem::failure(format!("'{}' has no address", target.host)))
}

/// Why no mode fetched the page: the reason of each, or their common one.
fn failure(report: &HttpDocument, target: &HttpTarget) -> Problem {
    let HttpDocument { url, address, ways, .. } = report;
    let errors: Vec<(&str, &str)> =
        ways.iter().filter_map(|way| Some((way.way.name(), way.error.as_deref()?))).collect();
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
             full URL for another server"
        }
        Some(fix) => fix,
        None => "check whether a browser or curl can fetch it from this host",
    };
    Problem::failure(format!("no mode could fetch {url} from {address}")).because(why).fix(fix)
}
