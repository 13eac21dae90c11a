//! `plumb agent --forward`: standard streams that lead to an agent which listens elsewhere.
//!
//! With it `plumb net` reaches a daemon as it reaches everything else: through a command's streams. Only
//! the control connection goes this way, never what is measured. Left out: pairing ([`crate::cli::net::pair`]).

use std::io::{self, Read, Write};
use std::thread;

use crate::cli::net::pair;
use crate::cli::output::Failure;
use crate::problem::Exit;

/// Bytes that are passed on at once.
const PIECE_BYTES: usize = 64 << 10;

/// Passes on both directions until either ends.
///
/// # Errors
/// The agent is not there, or does not know this host.
pub fn forward(host: &str) -> Result<Exit, Failure> {
    let (mut reader, mut writer, closer) =
        pair::connect(host)?.split().map_err(|error| pair::lost(host, &error))?;
    // Ends with the process, which has nothing to do once the agent has said its last word.
    thread::spawn(move || {
        pass(&mut io::stdin().lock(), &mut writer).ok();
        closer.close();
    });
    pass(&mut reader, &mut io::stdout().lock()).ok();
    Ok(Exit::Fine)
}

fn pass(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(len) => {
                to.write_all(&piece[..len])?;
                to.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
