//! What is fetched: a URL, or a host on which plumb's server runs.
//!
//! Left out: user names in URLs, fragments, and every scheme but http and https.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};

use super::DEFAULT_PORT;

/// Where a page is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTarget {
    /// Whether everything is encrypted; HTTP/3 always is.
    pub is_encrypted: bool,
    /// The host's name or address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The path with the query, beginning with a slash.
    pub path: String,
    /// Whether it is plumb's server, whose bytes are known.
    pub is_plumb: bool,
}

/// A text that names no page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' names no page ({why}); write http://HOST/PATH, https://HOST/PATH, or HOST where 'plumb agent --http' runs"
)]
pub struct HttpTargetError {
    text: String,
    why: &'static str,
}

impl HttpTarget {
    /// Reads a URL, or the name of a host with plumb's server: `HOST`, `HOST:PORT`, `[ADDRESS]:PORT`.
    ///
    /// # Errors
    /// [`HttpTargetError`].
    pub fn parse(text: &str) -> Result<Self, HttpTargetError> {
        let fault = |why| HttpTargetError { text: text.to_owned(), why };
        if text.len() > 2_048 || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(fault("only plain characters, and no spaces, can be in it"));
        }
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (Some(scheme.to_ascii_lowercase()), rest),
            None => (None, text),
        };
        let (is_encrypted, default_port) = match scheme.as_deref() {
            None => (false, DEFAULT_PORT),
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            Some(_) => return Err(fault("its scheme is neither http nor https")),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let authority_end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(authority_end);
        if scheme.is_none() && !path.is_empty() {
            return Err(fault("a path needs a scheme before it"));
        }
        if authority.contains('@') {
            return Err(fault("names and passwords are not taken"));
        }
        let (host, port) =
            split_port(authority).ok_or_else(|| fault("its port is not a number"))?;
        if host.is_empty() {
            return Err(fault("it has no host"));
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        // RFC 6874: a zone is written with an escaped percent sign.
        let host = host.replace("%25", "%");
        let port = port.unwrap_or(default_port);
        Ok(Self { is_encrypted, host, port, path, is_plumb: scheme.is_none() })
    }

    /// The value of the Host field: what a server needs to know whom it is taken for.
    pub fn authority(&self) -> String {
        // A zone means something on this host only.
        let host = self.host.split('%').next().unwrap_or_default();
        if host.contains(':') {
            format!("[{host}]:{}", self.port)
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// The name to be looked for in a certificate.
    pub fn server_name(&self) -> &str {
        self.host.split('%').next().unwrap_or_default()
    }

    /// Its addresses, in the order to try.
    ///
    /// # Errors
    /// The resolver's.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let addresses: Vec<SocketAddr> =
            (self.host.as_str(), self.port).to_socket_addrs()?.collect();
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        Ok(addresses)
    }
}

/// A host without its brackets, and its port. An address of IPv6 needs none where no port follows.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, Some(port.parse().ok()?))),
            None => rest.is_empty().then_some((host, None)),
        };
    }
    match authority.split_once(':') {
        None => Some((authority, None)),
        Some((_, rest)) if rest.contains(':') => Some((authority, None)),
        Some((host, port)) => Some((host, Some(port.parse().ok()?))),
    }
}

impl fmt::Display for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (bool, String, u16, String, bool) {
        let target = HttpTarget::parse(text).unwrap();
        (target.is_encrypted, target.host, target.port, target.path, target.is_plumb)
    }

    #[test]
    fn urls_and_hosts_are_read() {
        let own = |host: &str, port| (false, host.to_owned(), port, "/".to_owned(), true);
        assert_eq!(parts("lab"), own("lab", DEFAULT_PORT));
        assert_eq!(parts("lab:99"), own("lab", 99));
        assert_eq!(parts("fe80::1%eth0"), own("fe80::1%eth0", DEFAULT_PORT));
        assert_eq!(parts("[fe80::1%eth0]:7"), own("fe80::1%eth0", 7));
        let url = parts("HTTPS://example.org/a?b=c#d");
        assert_eq!(url, (true, "example.org".into(), 443, "/a?b=c".into(), false));
        assert_eq!(parts("http://h?q").3, "/?q");
        assert_eq!(parts("http://[fe80::1%25eth0]:8080/x").1, "fe80::1%eth0");
    }

    #[test]
    fn what_names_no_page_is_refused_with_its_reason() {
        for text in [
            "",
            "http://",
            "ftp://x/",
            "http://user:secret@x/",
            "x:port",
            "x:99999",
            "[::1",
            "[::1]x",
            "a b",
            "http://x/\r\nHost: y",
            "host/path",
        ] {
            let error = HttpTarget::parse(text).unwrap_err();
            assert!(!error.why.is_empty(), "{text}");
        }
    }

    #[test]
    fn a_zone_stays_on_this_host() {
        let target = HttpTarget::parse("http://[fe80::1%25eth0]:8080/x").unwrap();
        assert_eq!(target.authority(), "[fe80::1]:8080");
        assert_eq!(target.to_string(), "http://[fe80::1]:8080/x");
    }
}
