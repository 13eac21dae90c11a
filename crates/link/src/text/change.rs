//! A change to a link as text: `[hop N] [up|down] key=value,…`, or `preset NAME` for all of it.

use super::direction::{KeyValues, REPLAY, TRACE};
use super::{LinkTextFiles, NoFiles, TextError, value};
use crate::preset::LinkPreset;
use crate::spec::LinkSpec;

/// A file that a change names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedFile {
    /// Of opportunities to send.
    Trace(String),
    /// Of delays.
    Delays(String),
}

/// The files that a change names.
///
/// # Errors
/// [`TextError`] when it is no change.
pub fn files_of(change: &str) -> Result<Vec<NamedFile>, TextError> {
    let ParsedChange::Of { given, .. } = ParsedChange::parse(change)? else {
        return Ok(Vec::new());
    };
    let given = KeyValues::read(&given)?;
    let trace = given.value_of("rate").and_then(|text| text.strip_prefix(TRACE));
    let trace = trace.map(|name| value::unescape_file_name("rate", name).map(NamedFile::Trace));
    let delays = given.value_of("delay").and_then(|text| text.strip_prefix(REPLAY));
    let delays = delays.map(|name| value::unescape_file_name("delay", name).map(NamedFile::Delays));
    trace.into_iter().chain(delays).collect()
}

/// A change, read as far as it can be without its link.
enum ParsedChange {
    Preset(&'static LinkPreset),
    Of { hop: Option<usize>, up: bool, down: bool, given: String },
}

impl ParsedChange {
    fn parse(text: &str) -> Result<Self, TextError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut rest = &words[..];
        if let ["preset", name] = rest {
            let unknown =
                || value::invalid_value("preset", name, "the name of a preset, as lossy or 4g");
            return LinkPreset::named(name).map(Self::Preset).ok_or_else(unknown);
        }
        let (mut hop, mut way) = (None, None);
        loop {
            match rest {
                ["hop", number, more @ ..] if hop.is_none() => {
                    let known = number.parse().ok().filter(|number| *number > 0);
                    hop = Some(known.ok_or_else(|| no_hop(number))?);
                    rest = more;
                }
                [name @ ("up" | "down"), more @ ..] if way.is_none() => {
                    way = Some(*name);
                    rest = more;
                }
                _ => break,
            }
        }
        let given = rest.join(" ");
        if given.is_empty() {
            return Err(TextError::says_nothing(text.trim()));
        }
        Ok(Self::Of { hop, up: way != Some("down"), down: way != Some("up"), given })
    }
}

fn no_hop(number: &str) -> TextError {
    value::invalid_value("hop", number, "the number of a hop that the link has, from 1")
}

impl LinkSpec {
    /// The link with a change: to every direction, or to those that the text names first; or a preset, whose random
    /// draws still come from this link's seed.
    ///
    /// # Errors
    /// [`TextError`] when it cannot be read, names a hop that there is not, or leaves no possible link.
    pub fn changed(&self, text: &str, files: &dyn LinkTextFiles) -> Result<Self, TextError> {
        let (hop, up, down, given) = match ParsedChange::parse(text)? {
            ParsedChange::Preset(preset) => {
                return Ok(Self { seed: self.seed, ..Self::parse(preset.text, &NoFiles)? });
            }
            ParsedChange::Of { hop, up, down, given } => (hop, up, down, given),
        };
        if let Some(hop) = hop.filter(|hop| *hop > self.hops.len()) {
            return Err(no_hop(&hop.to_string()));
        }
        let mut changed = self.clone();
        for (index, spec) in changed.hops.iter_mut().enumerate() {
            if hop.is_none_or(|hop| hop == index + 1) {
                if up {
                    spec.up.apply(&given, files)?;
                }
                if down {
                    spec.down.apply(&given, files)?;
                }
            }
        }
        changed.check()?;
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::NoFiles;

    fn changed(link: &str, change: &str) -> String {
        let link: LinkSpec = link.parse().expect("a link");
        link.changed(change, &NoFiles)
            .map_or_else(|error| error.to_string(), |link| link.to_string())
    }

    fn same(link: &str) -> String {
        link.parse::<LinkSpec>().expect("a link").to_string()
    }

    #[test]
    fn a_change_reaches_the_directions_that_it_names() {
        let link = "rate=1mbit,loss=1%;delay=5ms";
        assert_eq!(changed(link, "hop 2 delay=7ms"), same("rate=1mbit,loss=1%;delay=7ms"));
        assert_eq!(
            changed(link, "hop 1 up rate=2mbit"),
            same("rate=2mbit,loss=1%|rate=1mbit,loss=1%;delay=5ms")
        );
        let both_ways = same("rate=1mbit,loss=1%;delay=5ms|delay=9ms");
        assert_eq!(changed(link, "down hop 2 delay=9ms"), both_ways);
        assert_eq!(changed(link, "hop 2 down delay=9ms"), both_ways);
        assert_eq!(changed(link, "delay=1ms"), same("rate=1mbit,loss=1%,delay=1ms;delay=1ms"));
        assert_eq!(changed("rate=1mbit", "down loss=2%"), same("rate=1mbit|rate=1mbit,loss=2%"));
        assert_eq!(changed("rate=1mbit", "rate=2mbit, delay=1ms"), same("rate=2mbit,delay=1ms"));
    }

    #[test]
    fn a_queue_goes_with_its_rate() {
        assert_eq!(changed("rate=1mbit,queue=codel", "rate=none"), same("plain"));
        assert!(changed("delay=1ms", "queue=codel").contains("limit nothing"));
        assert!(changed("rate=1mbit", "rate=none,queue=codel").contains("limit nothing"));
    }

    #[test]
    fn a_preset_is_the_whole_link_but_its_seed() {
        let lossy = LinkPreset::named("lossy").expect("there is one").text;
        let spec: LinkSpec = lossy.parse().expect("a link");
        assert_eq!(changed("rate=1mbit", "preset lossy"), spec.to_string());
        assert_eq!(changed("seed=7;rate=1mbit", "preset lossy"), format!("seed=7;{spec}"));
    }

    #[test]
    fn the_files_that_a_change_names_are_known_before_it_is_made() {
        let named =
            files_of("hop 2 up rate=trace:a%2cb, delay=replay:/my delays").expect("a change");
        let (trace, delays) = ("a,b".to_owned(), "/my delays".to_owned());
        assert_eq!(named, [NamedFile::Trace(trace), NamedFile::Delays(delays)]);
        assert_eq!(files_of("rate=1mbit"), Ok(Vec::new()));
        assert_eq!(files_of("preset lossy"), Ok(Vec::new()));
        assert!(files_of("up").is_err());
    }

    #[test]
    fn a_change_that_cannot_be_is_refused() {
        assert!(changed("plain", "hop 2 rate=1mbit").contains("from 1"));
        assert!(changed("plain", "up").contains("key=value"));
        assert!(changed("plain", "preset no-such").contains("preset"));
        assert!(changed("plain", "hop 0 rate=1mbit").contains("from 1"));
        assert!(changed("plain", "mtu=1").contains("IPv4 needs 68"));
    }
}
