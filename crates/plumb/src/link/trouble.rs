//! What goes wrong beside a link that runs and does not end it: told at once, and in its account.
//!
//! Left out: what the link itself does not do as it should, which its driver counts.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// All that went wrong so far.
#[derive(Clone, Debug)]
pub struct Troubles {
    texts: Arc<Mutex<Vec<String>>>,
    say: Sender<String>,
}

impl Troubles {
    /// None yet; `say` hears of each, on a thread of its own, so that whoever finds one need not wait.
    /// Without one more thread there is only the account.
    pub fn told(mut say: impl FnMut(&str) + Send + 'static) -> Self {
        let (sender, texts) = channel::<String>();
        let tell = move || texts.iter().for_each(|text| say(&text));
        std::thread::Builder::new().name("troubles".to_owned()).spawn(tell).map(drop).ok();
        Self { texts: Arc::default(), say: sender }
    }

    /// One more.
    pub fn add(&self, text: String) {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).push(text.clone());
        self.say.send(text).ok();
    }

    /// All of them.
    pub fn texts(&self) -> Vec<String> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
