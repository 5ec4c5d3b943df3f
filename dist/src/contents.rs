//! What a package puts where.
//!
//! The unit is called `kubelet.service` and the link `/usr/bin/kubelet`, because that is what kubeadm
//! and its drop-in of the unit name: the package takes the place of upstream's. There is no user and
//! no temporary directory to declare: the agent is root, and makes what it needs.

/// The texts that the executable prints.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    /// `ferrolet completion bash`
    pub bash: String,
    /// `ferrolet completion zsh`
    pub zsh: String,
    /// `ferrolet completion fish`
    pub fish: String,
    /// `ferrolet man`
    pub ferrolet_page: String,
    /// `ferrolet man kubelet`
    pub kubelet_page: String,
}

/// Everything that is released together.
#[derive(Clone, Debug)]
pub struct Release {
    /// The version, as Debian writes it.
    pub version: String,
    /// The Kubernetes version whose kubelet this is: `1.37.1`.
    pub kubernetes: String,
    /// The architecture in Debian's words: `amd64`, `arm64`.
    pub architecture: String,
    /// When it was made, in seconds since the epoch: the time of every file.
    pub time: u64,
    /// The executable.
    pub program: Vec<u8>,
    /// What it says of itself.
    pub texts: Texts,
    /// What it is made of.
    pub bill: String,
    /// CHANGELOG.md.
    pub changelog: String,
}

/// What stands at a path of the package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    Directory,
    Link(&'static str),
    File(&'a [u8]),
    Program(&'a [u8]),
    /// Compressed, as Debian wants pages and changelogs.
    Packed(&'a [u8]),
}

/// Files that an operator may change: an upgrade asks before it touches them.
pub(crate) const SETTINGS: [&str; 2] = ["etc/default/kubelet", "etc/ferrolet/kubelet.yaml"];

const CONFIGURATION: &str = include_str!("../files/kubelet.yaml");
const DEFAULTS: &str = include_str!("../files/default");
const UNIT: &str = include_str!("../files/kubelet.service");
const COPYRIGHT: &str = include_str!("../files/copyright");

impl Release {
    /// Every entry, parents before children.
    pub(crate) fn entries(&self) -> Vec<(&'static str, Entry<'_>)> {
        fn text(text: &str) -> Entry<'_> {
            Entry::File(text.as_bytes())
        }
        fn packed(text: &str) -> Entry<'_> {
            Entry::Packed(text.as_bytes())
        }
        let mut entries = vec![
            ("etc/default/kubelet", text(DEFAULTS)),
            ("etc/ferrolet/kubelet.yaml", text(CONFIGURATION)),
            ("etc/ferrolet/kubelet.conf.d", Entry::Directory),
            ("etc/kubernetes/manifests", Entry::Directory),
            ("usr/bin/ferrolet", Entry::Program(&self.program)),
            ("usr/bin/kubelet", Entry::Link("ferrolet")),
            ("usr/lib/systemd/system/kubelet.service", text(UNIT)),
            ("usr/share/doc/ferrolet/copyright", text(COPYRIGHT)),
            ("usr/share/doc/ferrolet/changelog.gz", packed(&self.changelog)),
            ("usr/share/doc/ferrolet/sbom.cdx.json", Entry::File(self.bill.as_bytes())),
        ];
        let shells = [
            ("usr/share/bash-completion/completions/ferrolet", &self.texts.bash),
            ("usr/share/zsh/vendor-completions/_ferrolet", &self.texts.zsh),
            ("usr/share/fish/vendor_completions.d/ferrolet.fish", &self.texts.fish),
        ];
        entries.extend(shells.map(|(path, text)| (path, Entry::File(text.as_bytes()))));
        entries.extend([
            ("usr/share/bash-completion/completions/kubelet", Entry::Link("ferrolet")),
            ("usr/share/fish/vendor_completions.d/kubelet.fish", Entry::Link("ferrolet.fish")),
            ("usr/share/man/man8/ferrolet.8.gz", packed(&self.texts.ferrolet_page)),
            ("usr/share/man/man8/kubelet.8.gz", packed(&self.texts.kubelet_page)),
        ]);
        let mut all: Vec<(&'static str, Entry<'_>)> = Vec::new();
        for (path, _) in &entries {
            for (at, _) in path.match_indices('/') {
                let parent = &path[..at];
                if !all.iter().chain(&entries).any(|(known, _)| *known == parent) {
                    all.push((parent, Entry::Directory));
                }
            }
        }
        all.extend(entries);
        all.sort_by_key(|(path, _)| *path);
        all
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn release() -> Release {
        Release {
            version: "0.1.0".to_owned(),
            kubernetes: "1.37.1".to_owned(),
            architecture: "amd64".to_owned(),
            time: 1_700_000_000,
            program: b"\x7fELF".to_vec(),
            texts: Texts { bash: "complete\n".to_owned(), ..Texts::default() },
            bill: "{}".to_owned(),
            changelog: "# Changelog\n".to_owned(),
        }
    }

    #[test]
    fn parents_come_before_children_and_nothing_twice() {
        let release = release();
        let entries = release.entries();
        let paths: Vec<&str> = entries.iter().map(|(path, _)| *path).collect();
        for (n, path) in paths.iter().enumerate() {
            assert!(!paths[..n].contains(path), "{path} is there twice");
            if let Some((parent, _)) = path.rsplit_once('/') {
                assert!(paths[..n].contains(&parent), "{path} comes before {parent}");
            }
        }
        assert!(SETTINGS.iter().all(|path| paths.contains(path)));
    }

    #[test]
    fn the_unit_starts_what_the_package_brings() {
        for word in [
            "/usr/bin/kubelet",
            "/etc/ferrolet/kubelet.yaml",
            "/etc/ferrolet/kubelet.conf.d",
            "/etc/default/kubelet",
            "Type=notify",
            "KillMode=process",
            "Delegate=yes",
        ] {
            assert!(UNIT.contains(word), "{word}");
        }
        assert!(CONFIGURATION.contains("staticPodPath: /etc/kubernetes/manifests"));
    }
}
