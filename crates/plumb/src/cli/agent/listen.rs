//! `plumb agent --listen`: the daemon, for clients that have been paired.
//!
//! Left out: who is let in (`plumb_net::secure::listener`), and what is done for them
//! (`plumb_net::agent`).

use std::net::SocketAddr;
use std::sync::Arc;

use plumb_analysis::document::agent::{AgentDocument, SCHEMA};
use plumb_net::agent::Agent;
use plumb_net::secure::greeting::Refusal;
use plumb_net::secure::{DEFAULT_PORT, Event, Limits, Listener, SecureStream, Service, Token};

use super::address;
use crate::cli::keys;
use crate::cli::output::{Failure, Output, stderr_line};
use crate::problem::{Exit, Problem};

/// Serves sessions and says what happens.
struct Sessions<'a> {
    agent: Arc<Agent>,
    output: &'a Output,
}

impl Service for Sessions<'_> {
    fn serve(&self, stream: SecureStream, peer: &str) {
        let outcome = stream
            .into_stream(peer)
            .map_err(|error| error.to_string())
            .and_then(|stream| self.agent.serve(stream).map_err(|error| error.to_string()));
        if let Err(error) = outcome {
            self.say(&format!("{peer}: {error}"));
        }
    }

    fn note(&self, event: &Event) {
        let text = match event {
            Event::Began { from, peer } => format!("{peer} has come from {from}"),
            Event::Ended { from, peer } => format!("{peer} has gone ({from})"),
            Event::Paired { from, peer, fingerprint } => {
                format!("paired with {peer} from {from}, whose key is {fingerprint}")
            }
            Event::Refused { from, refusal } => match refusal {
                Refusal::NotPaired { client } => {
                    format!("refused {from}: its key {client} is of nobody known")
                }
                refusal => format!("refused {from}: {refusal}"),
            },
            Event::Failed { from, reason } => format!("lost {from} in the greeting: {reason}"),
            Event::TurnedAway { from } => format!("turned {from} away: too many strangers"),
        };
        self.say(&text);
    }
}

impl Sessions<'_> {
    fn say(&self, text: &str) {
        if !self.output.quiet {
            stderr_line(&self.output.style_stderr.spell(text));
        }
    }
}

/// Where to listen.
///
/// # Errors
/// It is no address.
pub fn address(place: &str) -> Result<SocketAddr, Problem> {
    address::parse(place, address::any(DEFAULT_PORT))
}

/// Listens on `address` until it is stopped, for so many clients at a time; with `pairs`, takes one pairing.
///
/// # Errors
/// The address is not to be had, or this host has no key.
pub fn listen(
    address: SocketAddr,
    pairs: bool,
    clients: usize,
    agent: Arc<Agent>,
    output: &Output,
) -> Result<Exit, Failure> {
    let fault = |error: &dyn ToString| Problem::from_message(&error.to_string(), Exit::Trouble);
    let identity = keys::identity()?;
    let listener = Listener::bind(address, &identity, keys::peers()?, Limits::of_clients(clients))
        .map_err(|error| fault(&error))?;
    let address = listener.address().map_err(|error| fault(&error))?;
    let token = pairs.then(Token::generate).transpose().map_err(|error| fault(&error))?;
    let fingerprint = identity.fingerprint().to_string();
    let shown = token.as_ref().map(ToString::to_string);
    if let Some(token) = token {
        listener.open_pairing(token);
    }
    if output.json {
        output.document(&AgentDocument {
            schema: SCHEMA.to_owned(),
            mode: "listen".to_owned(),
            address: address.to_string(),
            fingerprint,
            token: shown,
        })?;
    } else {
        let mut page = format!("Listening on {address} until Ctrl-C, with the key {fingerprint}\n");
        if let Some(token) = shown {
            let port = address.port();
            let host =
                if port == DEFAULT_PORT { "HOST".to_owned() } else { format!("HOST:{port}") };
            page.push_str("Once, within ten minutes, on the other host:\n");
            page.extend(["  plumb net ", &host, " --pair ", &token, "\n"]);
        }
        output.page(&page)?;
    }
    plumb_host::stop::listen().ok();
    let sessions = Sessions { agent, output };
    std::thread::scope(|scope| {
        let running = scope.spawn(|| listener.run(&sessions));
        // Signals interrupt this thread's wait, or are seen after it.
        while plumb_host::stop::requests() == 0 && !running.is_finished() {
            std::thread::park_timeout(std::time::Duration::from_millis(100));
        }
        listener.stop();
        running.join().unwrap_or_else(|_| Err(std::io::Error::other("plumb has a bug")))
    })
    .map_err(|error| fault(&error))?;
    Ok(Exit::Fine)
}
