//! A change to a link as text: `[hop N] [up|down] key=value,…`.
//!
//! Left out: when it happens ([`crate::schedule`]).

use super::{Files, TextError};
use crate::spec::{LinkSpec, SpecError};

impl LinkSpec {
    /// The link with a change: to every direction, or to those that the text names first.
    ///
    /// # Errors
    /// [`TextError`] when it cannot be read, names a hop that there is not, or leaves no possible link.
    pub fn changed(&self, text: &str, files: &dyn Files) -> Result<Self, TextError> {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let mut hop = None;
        if let ["hop", number, ..] = words[..] {
            let numbers = 1..=self.hops.len();
            let known = number.parse().ok().filter(|number| numbers.contains(number));
            hop = Some(known.ok_or_else(|| TextError::Value {
                key: "hop",
                value: number.to_owned(),
                forms: "the number of a hop that the link has, from 1",
            })?);
            words.drain(..2);
        }
        let (up, down) = match words.first() {
            Some(&"up") => (true, false),
            Some(&"down") => (false, true),
            _ => (true, true),
        };
        let given = words[usize::from(!(up && down))..].join(" ");
        if given.is_empty() {
            return Err(TextError::Part { part: text.trim().to_owned() });
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
        changed.check().map_err(|error: SpecError| TextError::from(error))?;
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
        assert_eq!(changed("rate=1mbit", "down loss=2%"), same("rate=1mbit|rate=1mbit,loss=2%"));
        assert_eq!(changed("rate=1mbit", "rate=2mbit, delay=1ms"), same("rate=2mbit,delay=1ms"));
    }

    #[test]
    fn a_change_that_cannot_be_is_refused() {
        assert!(changed("plain", "hop 2 rate=1mbit").contains("from 1"));
        assert!(changed("plain", "up").contains("key=value"));
        assert!(changed("plain", "mtu=1").contains("IPv4 needs 68"));
    }
}
