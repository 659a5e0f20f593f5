# sh smallroot.sh RUN USERS TMP LOGINS RESULTS [DIRECTORY…] -- [FILE…] -- PYTHON [ARGUMENT…]
#
# Executes PYTHON in a root directory of its own, with the system's directories, the directories that are named, copies
# of the files that are named, and nothing else of the host. It runs as root in fresh user, mount and PID namespaces.
# RUN is an empty directory on which the root is mounted. The program's working directory is private and ends with the
# root. USERS becomes /etc/passwd; the directory TMP becomes /tmp and /var/tmp. The file LOGINS, if it exists, becomes
# Podman's auth.json there; the link `results` in the working directory leads to the directory RESULTS.
set -eu
PATH="$PATH:/usr/sbin:/usr/bin:/sbin:/bin"
new=$1 users=$2 tmp=$3 logins=$4 results=$5
shift 5

bind() {
    mkdir -p "./$1"
    mount --rbind "$2" "./$1"
}

mount -t tmpfs -o mode=755 tmpfs "$new"
cd "$new"
mkdir -p old run/own/user
chmod 700 run/own/user
ln -s "$results" run/own/results
if [ -f "$logins" ]; then
    mkdir run/own/user/containers
    cp -L "$logins" run/own/user/containers/auth.json
fi
for path in /usr /bin /sbin /lib /lib32 /lib64 /libx32; do
    if [ -L "$path" ]; then
        cp -P "$path" "./$path"
    elif [ -d "$path" ]; then
        bind "$path" "$path"
    fi
done
for path in /dev /sys /proc; do
    bind "$path" "$path"
done
# Links, because the kernel removes a mount over /etc/passwd as soon as the host replaces its file, as useradd does.
bind host-etc /etc
mkdir etc
(cd etc && ln -s ../host-etc/* .)
rm -f etc/passwd
cp "$users" etc/passwd
mount -t tmpfs tmpfs ./dev/shm
# build/layout.py passes the file's path to the steps: apt-get fails if it cannot become another user
echo 'APT::Sandbox::User "root";' >./dev/shm/container-engine-apt.conf
bind /tmp "$tmp"
bind /var/tmp "$tmp"
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then
        bind "$1" "$1"
    fi
    shift
done
shift
while [ "$1" != -- ]; do
    if [ -e "$1" ] && ! [ -e "./$1" ]; then
        mkdir -p "./${1%/*}"
        cp -RL "$1" "./$1"
    fi
    shift
done
shift
# Podman needs a home; this one is empty
mkdir -p "./${HOME:-}"
# not by util-linux's pivot_root(8), which Debian 14 has in a package that is rarely installed
"$1" -I -S -c 'import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if libc.pivot_root(b".", b"old"):
    raise SystemExit("pivot_root: " + os.strerror(ctypes.get_errno()))'
cd /run/own
umount -l /old
rmdir /old
exec setpriv --no-new-privs "$@"
