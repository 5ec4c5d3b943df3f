//! What a cgroup is called: as a path (driver cgroupfs) or as nested slices (driver systemd). Pure.

use std::path::PathBuf;

use ferrolet_ports::CgroupDriver;

/// A place in the hierarchy, as components without a driver's decoration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupName(Vec<String>);

impl CgroupName {
    /// Reads a path such as the configuration's `cgroupRoot`; empty and `/` are the root.
    pub fn parse(path: &str) -> Self {
        let components = path.split('/').filter(|part| !part.is_empty());
        Self(components.map(str::to_owned).collect())
    }

    /// The name one level down.
    pub fn child(&self, component: &str) -> Self {
        let mut components = self.0.clone();
        components.push(component.to_owned());
        Self(components)
    }

    /// Its components, outermost first.
    pub fn components(&self) -> &[String] {
        &self.0
    }

    /// The path in the file system below the mount point, as the driver spells it, with a leading
    /// slash.
    pub fn to_driver(&self, driver: CgroupDriver) -> String {
        match driver {
            CgroupDriver::Cgroupfs => self.to_cgroupfs(),
            CgroupDriver::Systemd => self.to_systemd(),
        }
    }

    /// `/kubepods/burstable/pod1`.
    pub fn to_cgroupfs(&self) -> String {
        format!("/{}", self.0.join("/"))
    }

    /// `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice`. A dash separates
    /// levels in a slice's name, so the dashes of a component become underscores.
    pub fn to_systemd(&self) -> String {
        let mut path = String::new();
        let mut slice = String::new();
        for component in &self.0 {
            if !slice.is_empty() {
                slice.push('-');
            }
            slice.push_str(&component.replace('-', "_"));
            path.push('/');
            path.push_str(&slice);
            path.push_str(".slice");
        }
        if path.is_empty() {
            path.push('/');
        }
        path
    }

    /// The way there from a mount point.
    pub fn relative(&self) -> PathBuf {
        self.0.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_drivers_spell_the_same_place() {
        let check = |name: &CgroupName, cgroupfs: &str, systemd: &str| {
            assert_eq!(name.to_driver(CgroupDriver::Cgroupfs), cgroupfs);
            assert_eq!(name.to_driver(CgroupDriver::Systemd), systemd);
        };
        let root = CgroupName::parse("/");
        check(&root, "/", "/");
        let kubepods = root.child("kubepods");
        check(&kubepods, "/kubepods", "/kubepods.slice");
        let pod = kubepods.child("burstable").child("pod1234-abcd-5678");
        check(
            &pod,
            "/kubepods/burstable/pod1234-abcd-5678",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_abcd_5678.slice",
        );
        check(
            &CgroupName::parse("/my-root/").child("kubepods"),
            "/my-root/kubepods",
            "/my_root.slice/my_root-kubepods.slice",
        );
    }
}
