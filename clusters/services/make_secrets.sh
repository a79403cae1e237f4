#!/bin/sh
# Create the passwords of the services in secrets/ next to this script, or in the folder of the first argument. Only
# their owner can read them, nothing is printed, and existing files are not changed.
#
#   postgres_password, mlflow.env     for compose.yaml and the systemd unit
#   pgpass, mlflow_credentials        for users who submit studies: as ~/.pgpass and ~/.mlflow/credentials
set -eu
umask 077
folder="${1:-$(dirname "$0")/secrets}"
mkdir -p "$folder"
cd "$folder"
if [ -e postgres_password ]; then
  echo "$folder holds passwords already; delete it to make others" >&2
  exit 1
fi

secret() { head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n'; }

database="$(secret)"
administrator="$(secret)"
printf %s "$database" > postgres_password
cat > mlflow.env <<END
PGPASSWORD=$database
MLFLOW_AUTH_ADMIN_PASSWORD=$administrator
MLFLOW_FLASK_SERVER_SECRET_KEY=$(secret)
END
echo "*:5432:*:memtune:$database" > pgpass
cat > mlflow_credentials <<END
[mlflow]
mlflow_tracking_username = admin
mlflow_tracking_password = $administrator
END
