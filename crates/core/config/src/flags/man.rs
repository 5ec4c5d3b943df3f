//! Manual pages, made from the table of flags and from the executable's own words.
//!
//! In: the words, and the version. Out: pages in the language of `man`. No page says more than
//! `--help` does: there is one text for each flag.

use super::{
    complete::{Next, Word},
    help::{default_text, value_name},
    table::{FLAGS, Future, Topic},
};
use crate::{FERROLET_VERSION, FeatureGates, RawConfig};

const KUBELET: &str = "\
.SH NAME
kubelet \\- the Kubernetes node agent (Ferrolet)
.SH SYNOPSIS
.B kubelet
[\\fB\\-\\-config\\fR \\fIFILE\\fR] [\\fIflags\\fR]
.SH DESCRIPTION
The kubelet is the agent of a Kubernetes node: it is given pods by the API server (\\fB\\-\\-kubeconfig\\fR), by files
(staticPodPath) or by a web address (staticPodURL), and keeps their containers running through a container runtime that
speaks CRI. This one is Ferrolet, written in Rust; flags, configuration and behaviour are those of Kubernetes' own.
Without \\fB\\-\\-kubeconfig\\fR the node stands alone.
.PP
Flags win over drop\\-ins, drop\\-ins over the file, the file over defaults. Those marked as deprecated still work but are
better written in the file; defaults are those without a file.
.PP
On SIGHUP, and when its files change, the configuration is read again. On SIGTERM the agent leaves; pods go on running.
";

const FERROLET: &str = "\
.SH NAME
ferrolet \\- the Kubernetes node agent, its runtime and its tools
.SH SYNOPSIS
.B ferrolet
\\fICOMMAND\\fR [\\fIflags\\fR]
.SH DESCRIPTION
One executable. Called through a link named kubelet it is the kubelet.
";

const FILES: &str = "\
.SH FILES
.TP
.I /etc/ferrolet/kubelet.yaml
The configuration of the packaged unit; \\fB\\-\\-config\\fR.
.TP
.I /etc/ferrolet/kubelet.conf.d/*.conf
What is laid over it, in lexical order; \\fB\\-\\-config\\-dir\\fR.
.TP
.I /etc/kubernetes/manifests
Pods of the packaged unit that no cluster knows.
.TP
.I /var/lib/kubelet
State of pods and volumes; \\fB\\-\\-root\\-dir\\fR.
";

/// The page of `kubelet`, section 8.
pub fn kubelet_page() -> String {
    let mut page = head("KUBELET");
    page.push_str(KUBELET);
    page.push_str(".SH OPTIONS\n");
    let defaults = RawConfig::legacy_defaults(&FeatureGates::default());
    for (topic, title) in Topic::ALL {
        page.push_str(&format!(".SS {}\n", escaped(title)));
        for flag in FLAGS.iter().filter(|flag| flag.topic == topic) {
            let (name, value) = (escaped(flag.name), escaped(value_name(flag.kind)));
            page.push_str(&format!(".TP\n\\fB\\-\\-{name}\\fR\\fI{value}\\fR\n"));
            page.push_str(&escaped(flag.help));
            let default = default_text(flag, &defaults);
            if !default.is_empty() {
                page.push_str(&format!(" Default: {}.", escaped(&default)));
            }
            if flag.future == Future::Deprecated {
                page.push_str(" Deprecated.");
            }
            page.push('\n');
        }
    }
    page.push_str(FILES);
    page.push_str(".SH SEE ALSO\n.BR ferrolet (8)\n");
    page
}

/// The page of `ferrolet`, section 8.
pub fn ferrolet_page(words: &[Word]) -> String {
    let mut page = head("FERROLET");
    page.push_str(FERROLET);
    page.push_str(".SH COMMANDS\n");
    let mut say = |name: &str, help: &str| {
        page.push_str(&format!(".TP\n\\fB{}\\fR\n{}\n", escaped(name), escaped(help)));
    };
    for word in words {
        say(word.name, word.help);
        if let Next::Words(inner) = word.next {
            inner.iter().for_each(|it| say(&format!("{} {}", word.name, it.name), it.help));
        }
    }
    page.push_str(FILES);
    page.push_str(".SH SEE ALSO\n.BR kubelet (8)\n");
    page
}

fn head(title: &str) -> String {
    format!(".TH {title} 8 \"\" \"Ferrolet {FERROLET_VERSION}\" \"Kubernetes node agent\"\n")
}

/// Text that `man` prints as it is.
fn escaped(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    match escaped.starts_with(['.', '\'']) {
        // A line that begins so would be a request.
        true => format!("\\&{escaped}"),
        false => escaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_flag_once() {
        let page = kubelet_page();
        for flag in FLAGS {
            let head = format!(".TP\n\\fB\\-\\-{}\\fR", flag.name.replace('-', "\\-"));
            assert_eq!(page.matches(&head).count(), 1, "{}", flag.name);
        }
        assert!(page.contains("Default: /var/lib/kubelet.\n"), "{page}");
        assert!(page.contains("Deprecated.\n"), "{page}");
    }

    #[test]
    fn words_of_words_are_named_in_full() {
        let words: &[Word] = &[Word {
            name: "config",
            help: "look",
            next: Next::Words(&[Word { name: "show", help: "all", next: Next::Flags }]),
        }];
        let page = ferrolet_page(words);
        assert!(page.contains("\\fBconfig show\\fR\nall\n"), "{page}");
    }

    #[test]
    fn what_would_be_a_request_is_text() {
        assert_eq!(escaped(".so x-y\\z"), "\\&.so x\\-y\\ez");
    }
}
