r"""A hub for one class on one computer with Docker, as an example to change.

python -m pip install dockerspawner jupyterhub jupyterhub-idle-culler \
    jupyterhub-nativeauthenticator
npm install -g configurable-http-proxy
docker build -t d2l-gpu -f hub/Dockerfile .
jupyterhub --config hub/jupyterhub_config.py
"""

c = get_config()  # noqa: F821  jupyterhub provides it

c.JupyterHub.spawner_class = "dockerspawner.DockerSpawner"
c.JupyterHub.hub_connect_ip = "host.docker.internal"
c.JupyterHub.hub_ip = "0.0.0.0"
c.DockerSpawner.extra_host_config = {
    "extra_hosts": {"host.docker.internal": "host-gateway"},
}
c.DockerSpawner.image = "d2l-gpu"
c.DockerSpawner.remove = True

# Each student's work outlives the container.
c.DockerSpawner.notebook_dir = "/home/jovyan"
c.DockerSpawner.volumes = {"d2l-gpu-{username}": "/home/jovyan"}

# docs/teaching/jupyterhub.md says where these figures are from.
c.DockerSpawner.mem_limit = "4G"
c.DockerSpawner.cpu_limit = 2

# Students choose a password when they register, and you let them in at /hub/authorize.
c.JupyterHub.authenticator_class = "native"
c.Authenticator.allow_all = True  # everybody whom you have let in
c.Authenticator.admin_users = {"teacher"}

# A server that nobody uses for an hour ends.
c.JupyterHub.load_roles = [
    {
        "name": "idle",
        "scopes": [
            "list:users",
            "read:users:activity",
            "read:servers",
            "delete:servers",
        ],
        "services": ["idle-culler"],
    }
]
c.JupyterHub.services = [
    {
        "name": "idle-culler",
        "command": ["python", "-m", "jupyterhub_idle_culler", "--timeout=3600"],
    }
]
