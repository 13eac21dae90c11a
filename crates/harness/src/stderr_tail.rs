//! What a command that was started says on standard error: read all the while, so that it is never kept from saying
//! more, and kept at its end, which is what matters once it fails.
//!
//! Left out: what is made of the words.

use std::io::Read;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Most bytes that are kept.
const TAIL_BYTES_MAX: usize = 4 << 10;
/// How long its last words are waited for.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The end of what a command has said.
#[derive(Debug)]
pub struct StderrTail {
    text: Arc<Mutex<Vec<u8>>>,
    /// Closed at its end.
    closed: Receiver<()>,
}

impl StderrTail {
    /// Listens to a command's standard error, if there is one, in a thread of its own.
    pub fn capture(stderr: Option<impl Read + Send + 'static>) -> Self {
        let text = Arc::<Mutex<Vec<u8>>>::default();
        let (open, over) = mpsc::sync_channel(0);
        if let Some(stderr) = stderr {
            let kept = Arc::clone(&text);
            thread::spawn(move || {
                keep(stderr, &kept);
                drop(open);
            });
        }
        Self { text, closed: over }
    }

    /// What there is, at its end or soon: whoever else holds it open may do so for good.
    pub fn finish(&self) -> String {
        self.closed.recv_timeout(DRAIN_TIMEOUT).ok();
        self.text()
    }

    /// What there is now.
    pub fn text(&self) -> String {
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Keeps the end of what comes, until nothing does.
fn keep(mut stderr: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut piece = [0; 1024];
    while let Ok(len @ 1..) = stderr.read(&mut piece) {
        let mut said = kept.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend_from_slice(&piece[..len]);
        let excess = said.len().saturating_sub(TAIL_BYTES_MAX);
        said.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write as _};

    use super::*;

    #[test]
    fn a_command_may_say_more_than_a_pipe_holds_and_its_last_words_are_kept() {
        let (hear, mut speak) = io::pipe().unwrap();
        let said = StderrTail::capture(Some(hear));
        // Blocks for good where nobody reads.
        speak.write_all(&vec![b'.'; 1 << 20]).unwrap();
        speak.write_all(b"the last words").unwrap();
        drop(speak);
        let text = said.finish();
        assert!(text.ends_with("..the last words"), "{text}");
        assert_eq!(text.len(), TAIL_BYTES_MAX);
    }

    #[test]
    fn words_are_there_though_somebody_else_holds_the_stream_open() {
        let (hear, mut speak) = io::pipe().unwrap();
        let said = StderrTail::capture(Some(hear));
        let held = speak.try_clone().unwrap();
        speak.write_all(b"refused").unwrap();
        drop(speak);
        assert_eq!(said.finish(), "refused");
        drop(held);
    }
}
